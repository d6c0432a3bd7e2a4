"""Whose a product is, ours or torch's, and what is known from earlier ones.

``operands`` and ``route`` say why torch multiplies, ``torchs_own`` has it do so. ``shortcut`` keeps
what was found out, ``repeated`` runs a call like an earlier one, ``differentiated`` one that
autograd follows.
"""

"""What a call's tensors need before and after a product: conversions, shapes, ``out``, memory."""

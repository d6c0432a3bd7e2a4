"""NumPy's own product, as it was when tiercel was imported.

Programs replace ``np.matmul``, by tiercel's function too; what is left to NumPy must not come back.
"""

import numpy as np

matmul = np.matmul

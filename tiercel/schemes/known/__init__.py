"""The schemes that the catalogue starts from, one module each: equations and their source."""

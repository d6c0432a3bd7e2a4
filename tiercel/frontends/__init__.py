"""One module or package per array library; each turns a user's call into 2-D products."""

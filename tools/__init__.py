"""Tools that build the documentation and the generated files."""

"""What makes the documentation, beside its pages."""

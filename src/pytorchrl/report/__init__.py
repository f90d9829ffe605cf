"""What people look at: curves and pages."""

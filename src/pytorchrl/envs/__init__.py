"""Environment makers, one small file per suite."""

"""Speed beside peers, in one run: only the ratios count."""

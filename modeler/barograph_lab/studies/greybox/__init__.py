"""The grey-box model of strong and weak scaling (Alasandagutti et al. 2024)."""

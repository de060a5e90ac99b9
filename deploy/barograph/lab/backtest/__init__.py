"""`barograph backtest`: how good bands, alerts and predictions would have been."""

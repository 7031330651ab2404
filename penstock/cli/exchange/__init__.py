"""`penstock import`, `penstock export` and `penstock topic copy`."""

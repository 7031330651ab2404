"""Systems we compare with that are programs of their own: started on loopback, always stopped."""

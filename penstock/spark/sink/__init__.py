"""The sink behind `df.write.format("penstock")`: tasks stage rows, the driver commits them."""

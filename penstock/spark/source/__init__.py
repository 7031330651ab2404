"""The source behind `spark.read.format("penstock")`: the driver plans slices, executors read them."""

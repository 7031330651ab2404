"""How tests start Spark."""

#: Tests run each query once or twice: the compiler for long runs takes longer than it saves, half of all
#: that Java computes in them.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: dict[str, object] = {"spark.sql.shuffle.partitions": 2, "spark.driver.extraJavaOptions": JAVA}

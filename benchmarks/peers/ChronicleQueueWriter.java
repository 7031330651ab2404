import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Random;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;

/** Writes messages with text keys to a new Chronicle Queue for each line it reads; prints how many a second. */
public class ChronicleQueueWriter {
    static final int DISTINCT = 10_000, VALUE_BYTES = 204;

    public static void main(String[] arguments) throws IOException {
        File folder = new File(arguments[0]);
        int messages = Integer.parseInt(arguments[1]);
        Random chance = new Random(220);
        String[] keys = new String[DISTINCT];
        byte[][] values = new byte[DISTINCT][VALUE_BYTES];
        for (int i = 0; i < DISTINCT; i++) {
            keys[i] = String.format("%016x", chance.nextLong());
            chance.nextBytes(values[i]);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try (ChronicleQueue queue = SingleChronicleQueueBuilder.binary(new File(folder, line)).build();
                    ExcerptAppender appender = queue.createAppender()) {
                long began = System.nanoTime();
                for (int i = 0; i < messages; i++) {
                    try (DocumentContext document = appender.writingDocument()) {
                        document.wire().write("key").text(keys[i % DISTINCT]);
                        document.wire().write("value").bytes(values[i % DISTINCT]);
                    }
                }
                System.out.println(messages * 1e9 / (System.nanoTime() - began));
            }
        }
    }
}

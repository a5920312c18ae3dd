// A consumer of the new protocol (KIP-848): polls until its standard input ends, then leaves the group.
// Arguments: bootstrap servers, group, topic, client id. Says its member id and partitions whenever they change.
// On a class path with kafka-clients 4.x.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class NewProtocolMember {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[1],
            "client.id", args[3],
            "group.protocol", "consumer",
            "enable.auto.commit", "false",
            "auto.offset.reset", "earliest");
        String said = "";
        try (var consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
                var partitions = consumer.assignment().stream().map(p -> p.partition()).sorted().toList();
                String now = consumer.groupMetadata().memberId() + "\t" + partitions;
                if (!now.equals(said)) {
                    System.out.println(now);
                    said = now;
                }
            }
        }
    }
}

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolAssignmentJsonConverter;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.ConsumerProtocolSubscriptionJsonConverter;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;

/**
 * Decodes records of __consumer_offsets as a broker does when it loads them.
 *
 * <p>Reads batches from stdin until it ends: a count, then each record's key and value, a length
 * before each, -1 for null. Writes a line of JSON for each record: what was read and how many bytes
 * were left, or why it was refused.
 */
public final class KafkaDecoder {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    private KafkaDecoder() {}

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, UTF_8);
        for (byte[] head = in.readNBytes(4); head.length == 4; head = in.readNBytes(4)) {
            // All of a batch is read before anything is written: neither side waits for the other.
            ByteBuffer[] parts = new ByteBuffer[2 * ByteBuffer.wrap(head).getInt()];
            for (int part = 0; part < parts.length; part++) {
                parts[part] = bytes(in);
            }
            for (int part = 0; part < parts.length; part += 2) {
                out.println(decoded(parts[part], parts[part + 1]));
            }
            out.flush();
        }
    }

    private static ByteBuffer bytes(DataInputStream in) throws IOException {
        int length = in.readInt();
        return length < 0 ? null : ByteBuffer.wrap(in.readNBytes(length));
    }

    private static ObjectNode decoded(ByteBuffer key, ByteBuffer value) {
        try {
            CoordinatorRecord found = SERDE.deserialize(key, value);
            ObjectNode line = JSON.objectNode();
            line.set("key", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(found.key()));
            line.put("keyLeft", key.remaining());
            line.put("valueLeft", value == null ? 0 : value.remaining());
            if (found.value() != null) {
                short version = found.value().version();
                line.set("value", CoordinatorRecordJsonConverters.writeRecordValueAsJson(
                        found.value().message(), version));
                line.set("embedded", embedded(found.value().message()));
            }
            return line;
        } catch (RuntimeException | OutOfMemoryError error) {
            return refused(error);
        }
    }

    private static ObjectNode refused(Throwable error) {
        return JSON.objectNode().put("refused", error.toString());
    }

    /** Gives what the bytes of consumers hold, in the order of the wire. */
    private static ArrayNode embedded(Object message) {
        ArrayNode found = JSON.arrayNode();
        if (message instanceof GroupMetadataValue) {
            GroupMetadataValue group = (GroupMetadataValue) message;
            if (group.protocolType().equals(ConsumerProtocol.PROTOCOL_TYPE)) {
                group.members().forEach(member -> {
                    found.add(subscription(member.subscription()));
                    found.add(assignment(member.assignment()));
                });
            }
        } else if (message instanceof ConsumerGroupMemberMetadataValue) {
            ConsumerGroupMemberMetadataValue member = (ConsumerGroupMemberMetadataValue) message;
            if (member.classicMemberMetadata() != null) {
                member.classicMemberMetadata().supportedProtocols()
                        .forEach(protocol -> found.add(subscription(protocol.metadata())));
            }
        }
        return found;
    }

    private static JsonNode subscription(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        try {
            ConsumerProtocolSubscription found =
                    ConsumerProtocol.deserializeConsumerProtocolSubscription(buffer);
            JsonNode fields = ConsumerProtocolSubscriptionJsonConverter.write(
                    found, ConsumerProtocolSubscription.HIGHEST_SUPPORTED_VERSION);
            return read(fields, buffer);
        } catch (RuntimeException | OutOfMemoryError error) {
            return refused(error);
        }
    }

    private static JsonNode assignment(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        try {
            ConsumerProtocolAssignment found =
                    ConsumerProtocol.deserializeConsumerProtocolAssignment(buffer);
            JsonNode fields = ConsumerProtocolAssignmentJsonConverter.write(
                    found, ConsumerProtocolAssignment.HIGHEST_SUPPORTED_VERSION);
            return read(fields, buffer);
        } catch (RuntimeException | OutOfMemoryError error) {
            return refused(error);
        }
    }

    private static ObjectNode read(JsonNode fields, ByteBuffer buffer) {
        ObjectNode found = JSON.objectNode().put("left", buffer.remaining());
        found.set("value", fields);
        return found;
    }
}

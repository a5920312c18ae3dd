package org.apache.kafka.coordinator.group;

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorPlayback;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;

/** The partitions of __consumer_offsets that the coordinator writes to. */
final class Log {
    /** What became of a record's transaction; a marker is its end, and given to no consumer. */
    private enum Fate { NONE, OPEN, COMMITTED, ABORTED, MARKER }

    private static final class Entry {
        final long timestamp;
        final long producer;
        final byte[] key;
        final byte[] value;
        Fate fate;

        Entry(long timestamp, long producer, byte[] key, byte[] value, Fate fate) {
            this.timestamp = timestamp;
            this.producer = producer;
            this.key = key;
            this.value = value;
            this.fate = fate;
        }
    }

    private final Map<Integer, List<Entry>> partitions = new TreeMap<>();

    private List<Entry> of(int partition) {
        return partitions.computeIfAbsent(partition, p -> new ArrayList<>());
    }

    long end(int partition) {
        return of(partition).size();
    }

    /** Add records; return whether one tells of more than offsets, which are of key versions 0 and 1. */
    boolean append(int partition, MemoryRecords records) {
        boolean tellsOfGroup = false;
        for (var batch : records.batches()) {
            for (var record : batch) {
                byte[] key = Utils.toNullableArray(record.key());
                byte[] value = Utils.toNullableArray(record.value());
                long producer = batch.producerId();
                if (batch.isControlBatch()) {
                    // The type of a marker follows its version: 0 aborts, 1 commits.
                    var fate = ByteBuffer.wrap(key).getShort(2) == 1 ? Fate.COMMITTED : Fate.ABORTED;
                    for (Entry entry : of(partition)) {
                        if (entry.fate == Fate.OPEN && entry.producer == producer) entry.fate = fate;
                    }
                    of(partition).add(new Entry(record.timestamp(), producer, new byte[] {(byte) fate.ordinal()}, null, Fate.MARKER));
                } else {
                    tellsOfGroup |= ByteBuffer.wrap(key).getShort() > 1;
                    of(partition).add(new Entry(
                        record.timestamp(), producer, key, value, batch.isTransactional() ? Fate.OPEN : Fate.NONE));
                }
            }
        }
        return tellsOfGroup;
    }

    /** Give a partition's records to a coordinator that is to lead it. */
    void replay(int partition, GroupCoordinatorRecordSerde serde, CoordinatorPlayback<CoordinatorRecord> playback) {
        long offset = 0;
        for (Entry entry : of(partition)) {
            if (entry.fate == Fate.MARKER) {
                boolean commits = entry.key[0] == Fate.COMMITTED.ordinal();
                playback.replayEndTransactionMarker(entry.producer, (short) 0, commits
                    ? org.apache.kafka.common.requests.TransactionResult.COMMIT
                    : org.apache.kafka.common.requests.TransactionResult.ABORT);
            } else {
                var value = entry.value == null ? null : ByteBuffer.wrap(entry.value);
                playback.replay(offset, entry.fate == Fate.NONE ? -1 : entry.producer, (short) 0,
                    serde.deserialize(ByteBuffer.wrap(entry.key), value));
            }
            offset++;
        }
        if (offset > 0) {
            playback.updateLastWrittenOffset(offset);
            playback.updateLastCommittedOffset(offset);
        }
    }

    /** Write what a consumer with read_committed gets: partition, offset, time, then key and value behind their lengths. */
    void write(DataOutputStream out) throws IOException {
        for (var partition : partitions.entrySet()) {
            long offset = 0;
            for (Entry entry : partition.getValue()) {
                if (entry.fate == Fate.OPEN) break;
                if (entry.fate == Fate.NONE || entry.fate == Fate.COMMITTED) {
                    out.writeInt(partition.getKey());
                    out.writeLong(offset);
                    out.writeLong(entry.timestamp);
                    write(out, entry.key);
                    write(out, entry.value);
                }
                offset++;
            }
        }
    }

    private static void write(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null) out.write(bytes);
    }
}

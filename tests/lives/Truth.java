package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.modern.ModernGroup;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.coordinator.group.modern.share.ShareGroup;
import org.apache.kafka.coordinator.group.streams.StreamsGroup;

/** What was so: each group as its coordinator's objects have it, whenever that changes; and what the coordinator says. */
final class Truth {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final class Known {
        Group group;
        String step = "";
        Map<String, Object> told = Map.of();
        boolean isSeen;
    }

    final List<String> lines = new ArrayList<>();
    private final Map<String, Known> watched = new LinkedHashMap<>();

    void watch(String group) {
        watched.putIfAbsent(group, new Known());
    }

    /** Records were written that tell of more than offsets: members may be others, or own something else. */
    void changed() {
        watched.values().forEach(known -> known.isSeen = false);
    }

    void note(long at, String kind, Map<String, Object> what) {
        var line = new LinkedHashMap<String, Object>(Map.of("kind", kind, "at", at));
        line.putAll(what);
        try {
            lines.add(JSON.writeValueAsString(line));
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    void look(Broker broker) {
        watched.forEach((id, known) -> {
            // While its coordinator moves, a group is nowhere; nothing of that is written.
            if (!broker.isMoving(id)) look(broker, id, known);
        });
    }

    private void look(Broker broker, String id, Known known) {
        Group group = broker.group(id);
        if (group == null && known.group == null) return;
        String step = group == null ? "Dead" : group.stateAsString() + generation(group) + group.type();
        if (known.isSeen && step.equals(known.step) && group == known.group) return;
        var told = new LinkedHashMap<String, Object>();
        told.put("group", id);
        told.put("state", group == null ? "Dead" : group.stateAsString());
        told.put("type", group == null ? known.told.get("type") : group.type().toString());
        told.put("generation", group == null ? known.told.get("generation") : generation(group));
        told.put("members", group == null ? Map.of() : members(group));
        told.put("owners", group == null ? Map.of() : owners(broker, group, known));
        if (!told.equals(known.told)) note(broker.now, "group", told);
        known.told = told;
        known.group = group;
        known.step = step;
        known.isSeen = true;
    }

    static int generation(Group group) {
        if (group instanceof ClassicGroup classic) return classic.generationId();
        return group instanceof ModernGroup<?> modern ? modern.groupEpoch() : ((StreamsGroup) group).groupEpoch();
    }

    /** Members with their client ids. */
    private static Map<String, String> members(Group group) {
        var members = new TreeMap<String, String>();
        if (group instanceof ClassicGroup classic) {
            classic.allMembers().forEach(m -> members.put(m.memberId(), m.clientId()));
        } else if (group instanceof ModernGroup<?> modern) {
            modern.members().forEach((id, m) -> members.put(id, m.clientId()));
        } else {
            ((StreamsGroup) group).members().forEach((id, m) -> members.put(id, m.clientId()));
        }
        return members;
    }

    private static Object owners(Broker broker, Group group, Known known) {
        var owners = new TreeMap<String, Set<String>>();
        if (group instanceof ClassicGroup classic) {
            // The coordinator keeps what was assigned until the next assignment.
            if (classic.stateAsString().endsWith("Rebalance")) return known.told.getOrDefault("owners", Map.of());
            if (!"consumer".equals(classic.protocolType().orElse(""))) return owners;
            for (var member : classic.allMembers()) {
                var owned = new TreeSet<String>();
                if (member.assignment().length > 2) {
                    ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(member.assignment())).partitions()
                        .forEach(tp -> owned.add(tp.topic() + "/" + tp.partition()));
                }
                owners.put(member.memberId(), owned);
            }
        } else if (group instanceof ConsumerGroup consumer) {
            consumer.members().forEach((id, m) -> {
                var owned = owners.computeIfAbsent(id, i -> new TreeSet<>());
                m.assignedPartitions().forEach((topic, parts) -> owned.addAll(named(broker, topic, parts.keySet())));
                m.partitionsPendingRevocation().forEach((topic, parts) -> owned.addAll(named(broker, topic, parts.keySet())));
            });
        } else if (group instanceof ShareGroup share) {
            share.members().forEach((id, m) -> {
                var owned = owners.computeIfAbsent(id, i -> new TreeSet<>());
                m.assignedPartitions().forEach((topic, parts) -> owned.addAll(named(broker, topic, parts)));
            });
        } else if (group instanceof StreamsGroup streams) {
            streams.members().forEach((id, m) -> {
                var owned = owners.computeIfAbsent(id, i -> new TreeSet<>());
                for (var tasks : List.of(m.assignedTasks(), m.tasksPendingRevocation())) {
                    tasks.activeTasksWithEpochs().forEach((name, parts) -> streams.topology()
                        .map(t -> t.subtopologies().get(name)).ifPresent(sub -> {
                            var sources = new TreeSet<>(sub.sourceTopics());
                            sub.repartitionSourceTopics().forEach(t -> sources.add(t.name()));
                            // A task has the partition of its number in each source topic that has one.
                            for (String topic : sources) {
                                for (int p : parts.keySet()) {
                                    var there = broker.topics.get(topic);
                                    if (there != null && p < there.partitions) owned.add(topic + "/" + p);
                                }
                            }
                        }));
                }
            });
        }
        return owners;
    }

    private static Set<String> named(Broker broker, Uuid topic, Collection<Integer> partitions) {
        String name = broker.topics.values().stream().filter(t -> t.id.equals(topic)).map(t -> t.name)
            .findFirst().orElse(topic.toString());
        var found = new TreeSet<String>();
        partitions.forEach(p -> found.add(name + "/" + p));
        return found;
    }
}

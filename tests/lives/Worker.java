package org.apache.kafka.connect.runtime.distributed;

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.LongSupplier;
import org.apache.kafka.clients.GroupRebalanceConfig;
import org.apache.kafka.clients.consumer.internals.AbstractCoordinator;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.storage.ConfigBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;

/** Connect's own WorkerCoordinator and its assignors, without a network. */
public final class Worker {
    private final Map<String, Integer> connectors;
    private final LongSupplier offset;
    private final WorkerCoordinator coordinator;
    private ExtendedAssignment assignment;

    public Worker(Time time, String group, String url, Map<String, Integer> connectors, LongSupplier offset, String mode, int delay) {
        this.connectors = connectors;
        this.offset = offset;
        var store = (ConfigBackingStore) Proxy.newProxyInstance(getClass().getClassLoader(),
            new Class<?>[] {ConfigBackingStore.class},
            (proxy, method, arguments) -> method.getName().equals("snapshot") ? snapshot() : null);
        var listener = new WorkerRebalanceListener() {
            @Override
            public void onAssigned(ExtendedAssignment given, int generation) {
                assignment = given;
            }

            @Override
            public void onRevoked(String leader, Collection<String> given, Collection<ConnectorTaskId> tasks) {}

            @Override
            public void onPollTimeoutExpiry() {}
        };
        coordinator = new WorkerCoordinator(
            new GroupRebalanceConfig(10_000, 60_000, 3_000, group, Optional.empty(), null, 100, 1_000), new LogContext(), null,
            new Metrics(), "connect", time, url, store, listener, ConnectProtocolCompatibility.compatibility(mode), delay);
    }

    private ClusterConfigState snapshot() {
        var configs = new HashMap<String, Map<String, String>>();
        var tasks = new HashMap<ConnectorTaskId, Map<String, String>>();
        connectors.forEach((name, count) -> {
            configs.put(name, Map.of("name", name));
            for (int t = 0; t < count; t++) tasks.put(new ConnectorTaskId(name, t), Map.of("task", "" + t));
        });
        return new ClusterConfigState(offset.getAsLong(), null, new HashMap<>(connectors), configs, Map.of(), tasks,
            Map.of(), Map.of(), Map.of(), Set.of(), Set.of());
    }

    /** Give up what the protocol asks for before a join. */
    public void prepare(int generation, String member) {
        coordinator.onJoinPrepare(null, generation, member);
    }

    public JoinGroupRequestProtocolCollection metadata() {
        return coordinator.metadata();
    }

    public Map<String, ByteBuffer> lead(int generation, String member, String protocol, List<JoinGroupResponseMember> members) {
        know(generation, member, protocol);
        return coordinator.onLeaderElected(member, protocol, members, false);
    }

    /** Take an assignment; return whether it revokes anything. */
    public boolean joined(int generation, String member, String protocol, ByteBuffer bytes) {
        know(generation, member, protocol);
        coordinator.onJoinComplete(generation, member, protocol, bytes);
        boolean revokes = !assignment.revokedConnectors().isEmpty() || !assignment.revokedTasks().isEmpty();
        if (revokes) {
            // The herder does so when all of it has stopped.
            assignment.revokedConnectors().clear();
            assignment.revokedTasks().clear();
        }
        return revokes;
    }

    private void know(int generation, String member, String protocol) {
        try {
            var type = Class.forName(AbstractCoordinator.class.getName() + "$Generation");
            var maker = type.getDeclaredConstructor(int.class, String.class, String.class);
            maker.setAccessible(true);
            Field field = AbstractCoordinator.class.getDeclaredField("generation");
            field.setAccessible(true);
            field.set(coordinator, maker.newInstance(generation, member, protocol));
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    public int delay() {
        return assignment.delay();
    }

    /** Whether the assignment rests on configurations that are not those of now. */
    public boolean isBehind() {
        return assignment.failed() || assignment.offset() != offset.getAsLong();
    }

    /** What it runs; a connector is its task -1. */
    public Set<String> running() {
        var all = new TreeSet<String>();
        if (assignment.failed()) return all;
        assignment.connectors().forEach(c -> all.add(c + "/-1"));
        assignment.tasks().forEach(t -> all.add(t.connector() + "/" + t.task()));
        return all;
    }
}

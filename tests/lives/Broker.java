package org.apache.kafka.coordinator.group;

import com.yammer.metrics.core.MetricsRegistry;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.AbstractExecutorService;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEvent;
import org.apache.kafka.coordinator.common.runtime.CoordinatorEventProcessor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorLoader;
import org.apache.kafka.coordinator.common.runtime.CoordinatorPlayback;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRuntimeMetrics;
import org.apache.kafka.coordinator.common.runtime.CoordinatorShardBuilder;
import org.apache.kafka.coordinator.common.runtime.PartitionWriter;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.share.persister.NoOpStatePersister;
import org.apache.kafka.server.util.PartitionMetadataClient;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/**
 * What surrounds Kafka's own group coordinator in a broker, in one thread and virtual time.
 *
 * <p>Everything that happens is an event of one queue: what clients send, timers, replication. A
 * life has a broker of its own, so that it is the same one whatever else is played.
 */
final class Broker {
    static final int PARTITIONS = 50;
    /** So many brokers, in three racks in turns. */
    private static final int BROKERS = 6;

    private record Event(long at, long number, Runnable action) {}

    /** A topic, and the records in it: as many a second in each partition as its rate says. */
    static final class Topic {
        final String name;
        final Uuid id;
        int partitions;
        /** The broker that each partition's replicas begin at, where they were moved. */
        private final Map<Integer, Integer> places = new HashMap<>();
        private double rate;
        private double written;
        private long since;

        private Topic(String name, Uuid id, int partitions, double rate, long now) {
            this.name = name;
            this.id = id;
            this.partitions = partitions;
            this.rate = rate;
            this.since = now;
        }

        long end(long now) {
            return (long) (written + rate * (now - since) / 1000);
        }

        /** From now on, have another rate; and add records at once. */
        void produce(double perSecond, long atOnce, long now) {
            written += rate * (now - since) / 1000 + atOnce;
            since = now;
            rate = perSecond;
        }
    }

    final Random random;
    final Log log = new Log();
    final Truth truth;
    final Map<String, Topic> topics = new TreeMap<>();
    final Set<Consumer<String>> watchers = new HashSet<>();
    final GroupCoordinatorService service;
    long now;

    private final PriorityQueue<Event> events =
        new PriorityQueue<>((a, b) -> a.at != b.at ? Long.compare(a.at, b.at) : Long.compare(a.number, b.number));
    private final ArrayDeque<CoordinatorEvent> requests = new ArrayDeque<>();
    private final Map<Integer, PartitionWriter.Listener> listeners = new HashMap<>();
    private final Map<Integer, Map<String, Group>> groups = new HashMap<>();
    private final Map<Integer, Long> replicatedAt = new HashMap<>();
    private final Map<Integer, Integer> epochs = new HashMap<>();
    private final Set<Integer> moving = new HashSet<>();
    private final GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
    private MetadataImage image = MetadataImage.EMPTY;
    private long numbered;
    private boolean isBusy;
    private boolean replicatesAtOnce;

    Broker(long start, long seed, Map<String, Object> settings, Truth truth) {
        this.now = start;
        this.random = new Random(seed);
        this.truth = truth;
        ConfigDef known = new ConfigDef(GroupCoordinatorConfig.CONFIG_DEF);
        for (var key : ShareGroupConfig.CONFIG_DEF.configKeys().values()) {
            if (!known.names().contains(key.name)) known.define(key);
        }
        var parsed = new AbstractConfig(known, settings, false);
        var config = new GroupCoordinatorConfig(parsed);
        var ofGroups = new GroupConfigManager(Map.of(), config, new ShareGroupConfig(parsed));
        var logging = new LogContext();
        var metrics = new GroupCoordinatorMetrics(new MetricsRegistry(), new Metrics());
        var unmetered = (CoordinatorRuntimeMetrics) Proxy.newProxyInstance(getClass().getClassLoader(),
            new Class<?>[] {CoordinatorRuntimeMetrics.class}, (proxy, method, arguments) -> null);
        Timer timer = new Timers();
        var runtime = new CoordinatorRuntime.Builder<GroupCoordinatorShard, CoordinatorRecord>()
            .withTime(new Clock()).withTimer(timer).withLogPrefix("").withLogContext(logging)
            .withEventProcessor(new AtOnce()).withPartitionWriter(new Writer()).withLoader(new Loader())
            .withCoordinatorShardBuilderSupplier(() -> new Shards(config, ofGroups).withAuthorizerPlugin(Optional.empty()))
            .withWriteTimeout(Duration.ofMillis(config.offsetCommitTimeoutMs()))
            .withCoordinatorRuntimeMetrics(unmetered).withCoordinatorMetrics(metrics).withSerializer(serde)
            .withAppendLingerMs(OptionalInt.empty()).withExecutorService(new Background())
            .withCachedBufferMaxBytesSupplier(config::cachedBufferMaxBytes).build();
        service = new GroupCoordinatorService(
            logging, config, runtime, metrics, ofGroups, new NoOpStatePersister(), timer, new NoEnds());
        service.startup(() -> PARTITIONS);
        var brokers = delta();
        for (int id = 0; id < BROKERS; id++) {
            brokers.replay(new RegisterBrokerRecord().setBrokerId(id).setRack("rack-" + id % 3).setFenced(false));
        }
        image = brokers.apply(new MetadataProvenance(0, 0, now, true));
        service.onMetadataUpdate(brokers, image);
    }

    // -- time -------------------------------------------------------------------------------------

    void in(long delay, Runnable action) {
        events.add(new Event(now + Math.max(0, delay), numbered++, action));
    }

    /** Let everything happen until a time. */
    void run(long end) {
        while (!events.isEmpty() && events.peek().at <= end) {
            var event = events.poll();
            now = event.at;
            event.action.run();
            work();
            truth.look(this);
        }
        now = end;
    }

    private void work() {
        if (isBusy) return;
        isBusy = true;
        for (var request = requests.poll(); request != null; request = requests.poll()) {
            try {
                request.run();
            } catch (Throwable error) {
                request.complete(error);
            }
        }
        isBusy = false;
    }

    // -- what a client sees of it -----------------------------------------------------------------

    /** Send a request, and have the answer: each takes a millisecond or some. */
    <T> void ask(Supplier<CompletableFuture<T>> request, Consumer<T> answer) {
        in(latency(), () -> request.get().whenComplete((given, error) -> {
            if (error != null) throw new IllegalStateException(error);
            in(latency(), () -> answer.accept(given));
        }));
    }

    private long latency() {
        return 1 + (long) (-2 * Math.log(1 - 0.9999 * random.nextDouble()));
    }

    /** Who asks, as the coordinator is told. */
    static AuthorizableRequestContext by(String client, InetAddress host, int version) {
        return (AuthorizableRequestContext) Proxy.newProxyInstance(Broker.class.getClassLoader(),
            new Class<?>[] {AuthorizableRequestContext.class}, (proxy, method, arguments) -> switch (method.getName()) {
                case "clientId" -> client;
                case "clientAddress" -> host;
                case "requestVersion" -> version;
                case "listenerName" -> "PLAINTEXT";
                case "securityProtocol" -> SecurityProtocol.PLAINTEXT;
                case "principal" -> KafkaPrincipal.ANONYMOUS;
                default -> 0;
            });
    }

    // -- topics and leaders -----------------------------------------------------------------------

    void create(String name, int partitions, double rate) {
        var topic = new Topic(name, new Uuid(random.nextLong(), random.nextLong()), partitions, rate, now);
        topics.put(name, topic);
        truth.note(now, "topic", Map.of("topic", name, "id", topic.id.toString()));
        var delta = delta();
        delta.replay(new TopicRecord().setName(name).setTopicId(topic.id));
        publish(delta, topic, 0);
    }

    void grow(String name, int partitions) {
        var topic = topics.get(name);
        int before = topic.partitions;
        topic.partitions = partitions;
        publish(delta(), topic, before);
    }

    void drop(String name) {
        var topic = topics.remove(name);
        var delta = delta();
        delta.replay(new RemoveTopicRecord().setTopicId(topic.id));
        publish(delta, topic, topic.partitions);
    }

    /** Move the replicas of a partition by a broker; meanwhile, those of before are replicas, too. */
    void move(String name, int partition, long takes) {
        var topic = topics.get(name);
        if (topic == null) return;
        int from = topic.places.getOrDefault(partition, partition % BROKERS);
        var both = new TreeSet<>(replicas(from));
        both.addAll(replicas(from + 1));
        place(topic, partition, List.copyOf(both));
        in(takes, () -> {
            topic.places.put(partition, from + 1);
            if (topics.get(name) == topic) place(topic, partition, replicas(from + 1));
        });
    }

    private void place(Topic topic, int partition, List<Integer> replicas) {
        var delta = delta();
        delta.replay(record(topic, partition, replicas));
        publish(delta, topic, topic.partitions);
    }

    private static List<Integer> replicas(int from) {
        return List.of(from % BROKERS, (from + 1) % BROKERS, (from + 2) % BROKERS);
    }

    private static PartitionRecord record(Topic topic, int partition, List<Integer> replicas) {
        return new PartitionRecord().setTopicId(topic.id).setPartitionId(partition)
            .setReplicas(replicas).setIsr(replicas).setLeader(replicas.get(0));
    }

    private MetadataDelta delta() {
        return new MetadataDelta.Builder().setImage(image).build();
    }

    private void publish(MetadataDelta delta, Topic topic, int from) {
        for (int p = from; p < topic.partitions; p++) {
            delta.replay(record(topic, p, replicas(p)));
        }
        image = delta.apply(new MetadataProvenance(++numbered, 1, now, true));
        // The service waits until its writes are replicated when a topic goes.
        replicatesAtOnce = true;
        service.onMetadataUpdate(delta, image);
        work();
        replicatesAtOnce = false;
        List.copyOf(watchers).forEach(w -> w.accept(topic.name));
    }

    /** Lead the partition of a group's records, unless it is led already. */
    int lead(String group) {
        int partition = service.partitionFor(group);
        if (!epochs.containsKey(partition)) elect(partition);
        return partition;
    }

    private void elect(int partition) {
        service.onElection(partition, epochs.merge(partition, 1, Integer::sum));
        work();
    }

    /** Let the coordinator of a group move: what is not in the log is lost. */
    void failOver(String group, long takes) {
        int partition = service.partitionFor(group);
        service.onResignation(partition, OptionalInt.of(epochs.merge(partition, 1, Integer::sum)));
        work();
        moving.add(partition);
        in(takes, () -> {
            elect(partition);
            moving.remove(partition);
        });
    }

    boolean isMoving(String group) {
        return moving.contains(service.partitionFor(group));
    }

    /** The group as its coordinator has it, or null. */
    Group group(String id) {
        return groups.getOrDefault(service.partitionFor(id), Map.of()).get(id);
    }

    private static Object field(Object owner, String name) {
        try {
            Field field = owner.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return field.get(owner);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    void configure(String group, Map<String, String> settings) {
        var properties = new Properties();
        properties.putAll(settings);
        service.updateGroupConfig(group, properties);
    }

    void endTransaction(String group, long producer, boolean commits) {
        service.completeTransaction(new TopicPartition("__consumer_offsets", service.partitionFor(group)), producer,
            (short) 0, 0, commits ? TransactionResult.COMMIT : TransactionResult.ABORT, (short) 1);
    }

    // -- what surrounds the coordinator -----------------------------------------------------------

    private final class Shards extends GroupCoordinatorShard.Builder {
        private TopicPartition partition;

        Shards(GroupCoordinatorConfig config, GroupConfigManager ofGroups) {
            super(config, ofGroups);
        }

        @Override
        public CoordinatorShardBuilder<GroupCoordinatorShard, CoordinatorRecord> withTopicPartition(TopicPartition given) {
            partition = given;
            return super.withTopicPartition(given);
        }

        @Override
        @SuppressWarnings("unchecked")
        public GroupCoordinatorShard build() {
            var shard = super.build();
            groups.put(partition.partition(), (Map<String, Group>) field(field(shard, "groupMetadataManager"), "groups"));
            return shard;
        }
    }

    private final class AtOnce implements CoordinatorEventProcessor {
        public void enqueueLast(CoordinatorEvent event) {
            requests.addLast(event);
            work();
        }

        public void enqueueFirst(CoordinatorEvent event) {
            requests.addFirst(event);
            work();
        }

        public void close() {}
    }

    private final class Clock implements Time {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    Time clock() {
        return new Clock();
    }

    private final class Timers implements Timer {
        public void add(TimerTask task) {
            var entry = new TimerTaskEntry(task, now + task.delayMs);
            in(task.delayMs, () -> {
                if (!entry.cancelled()) task.run();
            });
        }

        public boolean advanceClock(long timeout) {
            return false;
        }

        public int size() {
            return 0;
        }

        public void close() {}
    }

    /** Assignors and regular expressions run beside the coordinator, for some milliseconds. */
    private final class Background extends AbstractExecutorService {
        public void execute(Runnable command) {
            in(1 + random.nextInt(8), command);
        }

        public void shutdown() {}

        public List<Runnable> shutdownNow() {
            return List.of();
        }

        public boolean isShutdown() {
            return false;
        }

        public boolean isTerminated() {
            return false;
        }

        public boolean awaitTermination(long timeout, TimeUnit unit) {
            return true;
        }
    }

    private static final class NoEnds implements PartitionMetadataClient {
        public Map<TopicPartition, CompletableFuture<OffsetResponse>> listLatestOffsets(Set<TopicPartition> asked) {
            return Map.of();
        }

        public void close() {}
    }

    private final class Writer implements PartitionWriter {
        private final LogConfig config = new LogConfig(Map.of());

        public void registerListener(TopicPartition tp, Listener listener) {
            listeners.put(tp.partition(), listener);
        }

        public void deregisterListener(TopicPartition tp, Listener listener) {
            listeners.remove(tp.partition(), listener);
        }

        public LogConfig config(TopicPartition tp) {
            return config;
        }

        public long append(TopicPartition tp, VerificationGuard guard, MemoryRecords records, short version) {
            if (log.append(tp.partition(), records)) truth.changed();
            long end = log.end(tp.partition());
            var listener = listeners.get(tp.partition());
            Runnable replicated = () -> {
                if (listener != null && listeners.get(tp.partition()) == listener) {
                    listener.onHighWatermarkUpdated(tp, end);
                }
            };
            if (replicatesAtOnce) {
                replicated.run();
            } else {
                long at = Math.max(now + 1 + random.nextInt(4), replicatedAt.getOrDefault(tp.partition(), 0L));
                replicatedAt.put(tp.partition(), at);
                in(at - now, replicated);
            }
            return end;
        }

        public CompletableFuture<VerificationGuard> maybeStartTransactionVerification(
            TopicPartition tp, String transactionalId, long producer, short epoch, int version) {
            return CompletableFuture.completedFuture(VerificationGuard.SENTINEL);
        }

        public CompletableFuture<Void> deleteRecords(TopicPartition tp, long before) {
            return CompletableFuture.completedFuture(null);
        }
    }

    private final class Loader implements CoordinatorLoader<CoordinatorRecord> {
        public CompletableFuture<LoadSummary> load(TopicPartition tp, CoordinatorPlayback<CoordinatorRecord> playback) {
            log.replay(tp.partition(), serde, playback);
            return CompletableFuture.completedFuture(new LoadSummary(now, now, 0, 0, 0));
        }

        public void close() {}
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex. The protocol is that of worker.py. */
public final class CuratorBench {
    private static CuratorFramework client;

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        String hosts = orders.readLine().replaceFirst("^zk://", "").split("/")[0];
        client = CuratorFrameworkFactory.newClient(hosts, 30_000, 15_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            System.out.println(run(order.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String run(String[] order) throws Exception {
        int workers = Integer.parseInt(order[2]);
        long end = System.nanoTime() + Long.parseLong(order[3]) * 1_000_000;
        long hold = Long.parseLong(order[4]) * 1_000;
        Semaphore[] gates = {new Semaphore(0), new Semaphore(0)};
        List<List<String>> grants = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            List<String> own = new ArrayList<>();
            int number = worker;
            grants.add(own);
            threads.add(new Thread(() -> {
                try {
                    work(order[0], order[1], number, end, hold, gates, own);
                } catch (Exception e) {
                    e.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        List<String> lists = new ArrayList<>();
        for (List<String> own : grants) lists.add("[" + String.join(",", own) + "]");
        return "[" + String.join(",", lists) + "]";
    }

    private static void work(String mode, String name, int worker, long end, long hold, Semaphore[] gates, List<String> grants)
            throws Exception {
        boolean turns = mode.equals("turns");
        String path = "/bench-curator/" + (mode.equals("apart") ? name + "-" + worker : name);
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        if (turns && worker > 0 && !passes(gates[worker], end)) return;
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            if (!mutex.acquire(end - asked, TimeUnit.NANOSECONDS)) return;
            long acquired = System.nanoTime();
            if (turns) gates[1 - worker].release();
            for (long left = hold; left > 0; left = acquired + hold - System.nanoTime()) LockSupport.parkNanos(left);
            long releasing = System.nanoTime();
            mutex.release();
            grants.add("[" + asked + "," + acquired + "," + releasing + "," + System.nanoTime() + "]");
            if (turns && !passes(gates[worker], end)) return;
        }
    }

    private static boolean passes(Semaphore gate, long end) throws InterruptedException {
        return gate.tryAcquire(Math.max(end - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex. Arguments: ADDRESS PATH SECONDS. The line protocol is that of lines.py. */
public final class CuratorLock {
    public static void main(String[] args) throws Exception {
        int timeout = Integer.parseInt(args[2]) * 1000;
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            args[0], timeout, 15_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (order.equals("acquire")) {
                mutex.acquire();
                System.out.println("held");
            } else {
                mutex.release();
                System.out.println("released");
            }
        }
        // At once, and without a release.
        Runtime.getRuntime().halt(0);
    }
}

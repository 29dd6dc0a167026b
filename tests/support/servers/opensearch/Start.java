import org.codelibs.opensearch.runner.OpenSearchRunner;

/** Starts one node on exactly the given port. The runner's own main picks another port below 9300 and hides errors. */
class Start {
    public static void main(String[] arguments) throws Exception {
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.setMaxHttpPort(-1);
        try {
            runner.build(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(runner)));
        Thread.currentThread().join(); // the node's threads do not keep the JVM running
    }

    private static void close(OpenSearchRunner runner) {
        try {
            runner.close();
        } catch (java.io.IOException failure) {
            failure.printStackTrace();
        }
    }
}

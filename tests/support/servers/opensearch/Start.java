import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One node on exactly the port it is told: the runner's own main looks for another below 9300, and hides why it failed. */
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
        Thread.currentThread().join(); // the node's own threads do not keep Java alive
    }

    private static void close(OpenSearchRunner runner) {
        try {
            runner.close();
        } catch (java.io.IOException failure) {
            failure.printStackTrace();
        }
    }
}

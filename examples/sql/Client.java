// Enqueue a job, wait for its result, cancel another, and read what happened.
//
//     java -cp sqlite-jdbc.jar examples/sql/Client.java jobs.db
//
// Another process runs the jobs of the file: see docs/sql.md. This one needs Xerial's
// driver.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Set;

public class Client {
    static final Set<String> ENDED = Set.of("completed", "dead_lettered", "cancelled");

    static long insert(Connection db, String sql, Object value) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            statement.setObject(1, value);
            statement.executeUpdate();
            try (ResultSet keys = statement.getGeneratedKeys()) {
                keys.next();
                return keys.getLong(1);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:sqlite:" + arguments[0] + "?busy_timeout=30000&synchronous=full";
        try (Connection db = DriverManager.getConnection(url);
                var first = db.createStatement();
                var look = db.prepareStatement(
                        "select state, result from litejobs_job_report where id = ?");
                var cancel = db.prepareStatement(
                        "update litejobs_job set state = 'cancelled' where id = ?");
                var news = db.prepareStatement("select id, job_id, name"
                        + " from litejobs_event where id > ? order by id")) {
            long last;
            try (ResultSet row = first.executeQuery(
                    "select id from litejobs_event order by id desc limit 1")) {
                last = row.next() ? row.getLong(1) : 0;
            }

            long job = insert(db,
                    "insert into litejobs_job (task, args) values ('greet', ?)",
                    "{\"name\": \"Ann\"}");
            String state, result;
            do {
                Thread.sleep(50);
                look.setLong(1, job);
                try (ResultSet row = look.executeQuery()) {
                    state = row.getString(1);
                    result = row.getString(2);
                }
            } while (!ENDED.contains(state));
            System.out.println(state + " " + result.replace("\"", ""));

            long later = insert(db,
                    "insert into litejobs_job (task, run_at) values ('greet', ?)",
                    System.currentTimeMillis() + 3_600_000);
            cancel.setLong(1, later);
            cancel.executeUpdate();

            news.setLong(1, last);
            try (ResultSet event = news.executeQuery()) {
                while (event.next()) {
                    last = event.getLong(1); // the next look begins here
                    System.out.println("job " + event.getLong(2) + " " + event.getString(3));
                }
            }
        }
    }
}

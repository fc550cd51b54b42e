// JDBC with Xerial's driver: `java -cp sqlite-jdbc.jar Client.java FILE`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;

public class Client {
    static final List<PreparedStatement> left = new ArrayList<>();

    static void say(List<Object> parts) {
        List<String> words = new ArrayList<>();
        for (Object part : parts) {
            words.add(part == null ? "" : part.toString().replaceAll("\\s+", " "));
        }
        System.out.println(String.join("\t", words));
    }

    static Object bound(String said) {
        String text = said.substring(1);
        return switch (said.charAt(0)) {
            case 'i' -> Long.valueOf(text);
            case 'r' -> Double.valueOf(text);
            case 'b' -> text.equals("1");
            case 't' -> text;
            case 'd' -> new Timestamp(Long.parseLong(text));
            default -> null;
        };
    }

    static void answer(Connection db, String[] parts) throws SQLException {
        PreparedStatement statement = db.prepareStatement(parts[1]);
        try {
            for (int n = 2; n < parts.length; n++) {
                statement.setObject(n - 1, bound(parts[n]));
            }
            if (statement.execute()) {
                ResultSet rows = statement.getResultSet();
                int columns = rows.getMetaData().getColumnCount();
                while (rows.next()) {
                    List<Object> row = new ArrayList<>(List.of("row"));
                    for (int n = 1; n <= columns; n++) {
                        row.add(rows.getObject(n));
                    }
                    say(row);
                    if (parts[0].equals("first")) {
                        left.add(statement);
                        break;
                    }
                }
                say(List.of("done"));
            } else {
                int changed = statement.getUpdateCount();
                ResultSet keys = statement.getGeneratedKeys();
                say(List.of("done", changed, keys.next() ? keys.getLong(1) : ""));
            }
        } finally {
            if (parts[0].equals("run")) {
                statement.close();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Connection db = DriverManager.getConnection("jdbc:sqlite:" + arguments[0]);
        var about = db.getMetaData();
        say(List.of("ready", about.getDriverVersion(), about.getDatabaseProductVersion()));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            try {
                answer(db, line.split("\t", -1));
            } catch (Exception error) {
                say(List.of("error", String.valueOf(error.getMessage())));
            }
        }
    }
}

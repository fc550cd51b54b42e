<?php
// PHP's PDO and SQLite3: `php client.php pdo|sqlite3 FILE`.
[, $which, $path] = $argv;

function say(...$parts) {
    foreach ($parts as &$part) {
        $part = preg_replace('/\s+/', ' ', (string) $part);
    }
    fwrite(STDOUT, implode("\t", $parts) . "\n");
}

function bound(string $said) {
    $text = substr($said, 1);
    return match ($said[0]) {
        'i' => (int) $text, 'r' => (float) $text, 'b' => $text === '1',
        't' => $text, 'n' => null, 'd' => new DateTime('@' . intdiv((int) $text, 1000)),
    };
}

function with_pdo(PDO $db, string $sql, array $given, bool $all): void {
    global $left;
    $statement = $db->prepare($sql);
    $statement->execute($given);
    while ($statement->columnCount() && $row = $statement->fetch(PDO::FETCH_NUM)) {
        say('row', ...$row);
        if (!$all) {
            $left[] = $statement;
            break;
        }
    }
    say('done', $statement->rowCount(), $db->lastInsertId());
}

function with_sqlite3(SQLite3 $db, string $sql, array $given, bool $all): void {
    global $left;
    $statement = $db->prepare($sql);
    foreach ($given as $number => $value) {
        $statement->bindValue($number + 1, $value);
    }
    $result = $statement->execute();
    while ($result->numColumns() && $row = $result->fetchArray(SQLITE3_NUM)) {
        say('row', ...$row);
        if (!$all) {
            $left[] = [$statement, $result];
            break;
        }
    }
    say('done', $db->changes(), $db->lastInsertRowID());
}

if ($which === 'pdo') {
    $db = new PDO("sqlite:$path");
    $version = $db->query('select sqlite_version()')->fetchColumn();
} else {
    $db = new SQLite3($path);
    $db->enableExceptions(true);
    $version = SQLite3::version()['versionString'];
}
say('ready', PHP_VERSION, $version);
while (($line = fgets(STDIN)) !== false) {
    [$verb, $sql] = $values = explode("\t", rtrim($line, "\n"));
    try {
        $given = array_map('bound', array_slice($values, 2));
        ("with_$which")($db, $sql, $given, $verb === 'run');
    } catch (Throwable $error) {
        say('error', $error->getMessage());
    }
}

<?php
/* Enqueue a job, wait for its result, cancel another, and read what happened.

    php examples/sql/client.php jobs.db

Another process runs the jobs of the file: see docs/sql.md. This one needs php-sqlite3. */

$db = new PDO("sqlite:$argv[1]", options: [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$db->exec('pragma synchronous = full');

$newest = 'select id from litejobs_event order by id desc limit 1';
$last = $db->query($newest)->fetchColumn() ?: 0;

$insert = $db->prepare("insert into litejobs_job (task, args) values ('greet', ?)");
$insert->execute([json_encode(['name' => 'Ann'])]);
$job = $db->lastInsertId();
$look = $db->prepare('select state, result from litejobs_job_report where id = ?');
do {
    usleep(50_000);
    $look->execute([$job]);
    [$state, $result] = $look->fetch(PDO::FETCH_NUM);
    $look->closeCursor();
} while (!in_array($state, ['completed', 'dead_lettered', 'cancelled']));
echo $state, ' ', json_decode($result), "\n";

$insert = $db->prepare("insert into litejobs_job (task, run_at) values ('greet', ?)");
$insert->execute([(int) (microtime(true) * 1000) + 3_600_000]);
$later = $db->lastInsertId();
$cancel = $db->prepare("update litejobs_job set state = 'cancelled' where id = ?");
$cancel->execute([$later]);

$news = $db->prepare(
    'select id, job_id, name from litejobs_event where id > ? order by id'
);
$news->execute([$last]);
foreach ($news as $event) {
    $last = $event['id']; // the next look begins here
    echo 'job ', $event['job_id'], ' ', $event['name'], "\n";
}

// Enqueue a job, wait for its result, cancel another, and read what happened.
//
//	go run examples/sql/client.go jobs.db
//
// Another process runs the jobs of the file: see docs/sql.md. This one needs
// github.com/mattn/go-sqlite3.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func changed(db *sql.DB, statement string, given ...any) int64 {
	result, err := db.Exec(statement, given...)
	check(err)
	id, err := result.LastInsertId()
	check(err)
	return id
}

func main() {
	// The driver comes with `synchronous` as normal, by which a power cut may take jobs.
	db, err := sql.Open("sqlite3", "file:"+os.Args[1]+"?_sync=full&_timeout=30000")
	check(err)
	var last int64
	err = db.QueryRow("select id from litejobs_event order by id desc limit 1").Scan(&last)
	if err != sql.ErrNoRows {
		check(err)
	}

	args, _ := json.Marshal(map[string]string{"name": "Ann"})
	job := changed(db, "insert into litejobs_job (task, args) values ('greet', ?)",
		string(args))
	var state string
	var result sql.NullString
	for state != "completed" && state != "dead_lettered" && state != "cancelled" {
		time.Sleep(50 * time.Millisecond)
		check(db.QueryRow("select state, result from litejobs_job_report where id = ?",
			job).Scan(&state, &result))
	}
	var greeting string
	check(json.Unmarshal([]byte(result.String), &greeting))
	fmt.Println(state, greeting)

	later := changed(db, "insert into litejobs_job (task, run_at) values ('greet', ?)",
		time.Now().Add(time.Hour).UnixMilli())
	changed(db, "update litejobs_job set state = 'cancelled' where id = ?", later)

	news, err := db.Query(
		"select id, job_id, name from litejobs_event where id > ? order by id", last)
	check(err)
	defer news.Close()
	for news.Next() {
		var job int64
		var name string
		check(news.Scan(&last, &job, &name)) // the next look begins at last
		fmt.Println("job", job, name)
	}
}

// Go's database/sql with mattn/go-sqlite3: `go run client.go FILE`.
package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
)

var space = regexp.MustCompile(`\s+`)
var reads = regexp.MustCompile(`(?i)^(select|pragma|with)|returning`)

func say(parts ...any) {
	words := make([]string, len(parts))
	for n, part := range parts {
		if raw, isBytes := part.([]byte); isBytes {
			part = string(raw)
		}
		if part != nil {
			words[n] = space.ReplaceAllString(fmt.Sprint(part), " ")
		}
	}
	fmt.Println(strings.Join(words, "\t"))
}

func bound(said string) any {
	text := said[1:]
	number, _ := strconv.ParseInt(text, 10, 64)
	switch said[0] {
	case 'i':
		return number
	case 'r':
		real, _ := strconv.ParseFloat(text, 64)
		return real
	case 'b':
		return text == "1"
	case 't':
		return text
	case 'd':
		return time.UnixMilli(number)
	}
	return nil
}

func query(db *sql.DB, verb, statement string, given []any) error {
	rows, err := db.Query(statement, given...)
	if err != nil {
		return err
	}
	if verb == "run" {
		defer rows.Close()
	}
	columns, _ := rows.Columns()
	cells, places := make([]any, len(columns)), make([]any, len(columns))
	for n := range cells {
		places[n] = &cells[n]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return err
		}
		say(append([]any{"row"}, cells...)...)
		if verb == "first" {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	say("done")
	return nil
}

func exec(db *sql.DB, statement string, given []any) error {
	result, err := db.Exec(statement, given...)
	if err != nil {
		return err
	}
	changed, _ := result.RowsAffected()
	id, _ := result.LastInsertId()
	say("done", changed, id)
	return nil
}

func main() {
	db, err := sql.Open("sqlite3", os.Args[1])
	if err != nil {
		say("error", err)
		return
	}
	version, _, _ := sqlite3.Version()
	say("ready", runtime.Version(), version)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), "\t")
		given := []any{}
		for _, each := range parts[2:] {
			given = append(given, bound(each))
		}
		var err error
		if reads.MatchString(parts[1]) {
			err = query(db, parts[0], parts[1], given)
		} else {
			err = exec(db, parts[1], given)
		}
		if err != nil {
			say("error", err)
		}
	}
}

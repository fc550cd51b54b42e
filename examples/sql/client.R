# Enqueue a job, wait for its result, cancel another, and read what happened.
#
#     Rscript examples/sql/client.R jobs.db
#
# Another process runs the jobs of the file: see docs/sql.md. This one needs RSQLite and
# jsonlite.
library(DBI)

# RSQLite switches `synchronous` off, by which a power cut may damage the file.
db <- dbConnect(RSQLite::SQLite(), commandArgs(TRUE)[1], synchronous = "full")
invisible(dbExecute(db, "pragma busy_timeout = 30000"))
last_id <- function() dbGetQuery(db, "select last_insert_rowid() as id")$id

newest <- "select id from litejobs_event order by id desc limit 1"
last <- max(0, dbGetQuery(db, newest)$id)

invisible(dbExecute(db, "insert into litejobs_job (task, args) values ('greet', ?)",
                    list('{"name": "Ann"}')))
job <- last_id()
repeat {
  Sys.sleep(0.05)
  found <- dbGetQuery(db, "select state, result from litejobs_job_report where id = ?",
                      list(job))
  if (found$state %in% c("completed", "dead_lettered", "cancelled")) break
}
cat(found$state, jsonlite::fromJSON(found$result), "\n")

# A number is a real here, and a large one is written out.
invisible(dbExecute(db, "insert into litejobs_job (task, run_at) values ('greet', ?)",
                    list(floor(as.numeric(Sys.time()) * 1000) + 3600000)))
invisible(dbExecute(db, "update litejobs_job set state = 'cancelled' where id = ?",
                    list(last_id())))

news <- dbGetQuery(
  db, "select id, job_id, name from litejobs_event where id > ? order by id", list(last))
last <- max(news$id) # the next look begins here
cat(paste("job", news$job_id, news$name), sep = "\n")

# R's DBI with RSQLite: `Rscript client.R FILE`.
suppressWarnings(library(DBI))
path <- commandArgs(trailingOnly = TRUE)
say <- function(...) {
  cat(gsub("[[:space:]]+", " ", gsub("\t", "\x01", paste(..., sep = "\t"))) |>
        gsub(pattern = "\x01", replacement = "\t"), "\n", sep = "")
  flush(stdout())
}
bound <- function(said) {
  text <- substring(said, 2)
  switch(substring(said, 1, 1),
    i = as.numeric(text), r = as.numeric(text), b = text == "1", t = text, n = NA,
    d = as.POSIXct(as.numeric(text) / 1000, origin = "1970-01-01"))
}
db <- dbConnect(RSQLite::SQLite(), path)
version <- dbGetQuery(db, "select sqlite_version()")[[1]]
say("ready", as.character(packageVersion("RSQLite")), version)
left <- NULL
input <- file("stdin", "r")
while (length(line <- readLines(input, 1)) > 0) {
  parts <- strsplit(line, "\t", fixed = TRUE)[[1]]
  sql <- parts[2]
  tryCatch({
    given <- lapply(parts[-(1:2)], bound)
    given <- if (length(given)) given
    if (!grepl("^(select|pragma|with)|returning", sql, ignore.case = TRUE)) {
      changed <- dbExecute(db, sql, params = given)
      say("done", changed, dbGetQuery(db, "select last_insert_rowid()")[[1]])
    } else {
      result <- suppressWarnings(dbSendQuery(db, sql, params = given))
      rows <- dbFetch(result, n = if (parts[1] == "first") 1 else -1)
      if (parts[1] == "first") left <- result else dbClearResult(result)
      for (n in seq_len(nrow(rows))) {
        cells <- vapply(rows[n, , drop = FALSE], format, "", digits = 15,
                        scientific = FALSE, trim = TRUE)
        do.call(say, as.list(c("row", unname(cells))))
      }
      say("done", "", "")
    }
  }, error = function(error) say("error", conditionMessage(error)))
}

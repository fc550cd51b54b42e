-- Lua's DBI: `lua client.lua FILE`.
local path = arg[1]
io.stdout:setvbuf("line")

local function say(...)
  local parts = {}
  for n = 1, select("#", ...) do
    local part = select(n, ...)
    parts[n] = tostring(part == nil and "" or part):gsub("%s+", " ")
  end
  print(table.concat(parts, "\t"))
end

local function bound(said)
  local kind, text = said:sub(1, 1), said:sub(2)
  if kind == "i" then return math.tointeger(tonumber(text)) end
  if kind == "r" then return tonumber(text) end
  if kind == "b" then return text == "1" end
  if kind == "t" then return text end
  if kind == "d" then return os.date("!%Y-%m-%d %H:%M:%S", tonumber(text) // 1000) end
  return nil
end

local DBI = require("DBI")
local db = assert(DBI.Connect("SQLite3", path))
db:autocommit(true)
local function run(statement, verb, values)
  assert(statement:execute(table.unpack(values, 1, #values)))
  if #statement:columns() > 0 then
    for row in statement:rows() do
      say("row", table.unpack(row))
      if verb == "first" then break end
    end
  end
  say("done", statement:affected(), db:last_id())
end
local version = assert(db:prepare("select sqlite_version()"))
version:execute()
say("ready", DBI._VERSION, version:fetch(false)[1])
version:close()
for line in io.lines() do
  local parts = {}
  for part in (line .. "\t"):gmatch("([^\t]*)\t") do parts[#parts + 1] = part end
  local values = {}
  for n = 3, #parts do values[n - 2] = bound(parts[n]) end
  local statement, message = db:prepare(parts[2])
  local ok = statement
  if ok then ok, message = pcall(run, statement, parts[1], values) end
  if not ok then say("error", message) end
  -- One that failed and is not closed keeps what comes after it from being committed.
  if statement and parts[1] == "run" then statement:close() end
end

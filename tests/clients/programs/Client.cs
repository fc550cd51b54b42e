// .NET's ADO with Mono.Data.Sqlite: `mono Client.exe FILE`.
using System;
using System.Collections.Generic;
using System.Data;
using System.Linq;
using System.Text.RegularExpressions;
using Mono.Data.Sqlite;

static class Client
{
    static readonly List<IDataReader> Left = new List<IDataReader>();

    static void Say(params object[] parts)
    {
        var words = parts.Select(part => Regex.Replace($"{part}", @"\s+", " "));
        Console.WriteLine(string.Join("\t", words));
        Console.Out.Flush();
    }

    static object Bound(string said)
    {
        var text = said.Substring(1);
        switch (said[0])
        {
            case 'i': return long.Parse(text);
            case 'r': return double.Parse(text);
            case 'b': return text == "1";
            case 't': return text;
            case 'd': return new DateTime(1970, 1, 1).AddMilliseconds(long.Parse(text));
            default: return DBNull.Value;
        }
    }

    static void Answer(SqliteConnection db, string[] parts)
    {
        var command = db.CreateCommand();
        command.CommandText = parts[1];
        foreach (var each in parts.Skip(2))
            command.Parameters.Add(new SqliteParameter { Value = Bound(each) });
        if (!Regex.IsMatch(parts[1], "^(select|pragma)|returning"))
        {
            var changed = command.ExecuteNonQuery();
            var last = db.CreateCommand();
            last.CommandText = "select last_insert_rowid()";
            Say("done", changed, last.ExecuteScalar());
            return;
        }
        var rows = command.ExecuteReader();
        while (rows.Read())
        {
            var cells = new object[rows.FieldCount];
            rows.GetValues(cells);
            Say(new object[] { "row" }.Concat(cells).ToArray());
            if (parts[0] == "first")
            {
                Left.Add(rows);
                break;
            }
        }
        if (parts[0] == "run") rows.Close();
        Say("done");
    }

    static void Main(string[] arguments)
    {
        var db = new SqliteConnection($"Data Source={arguments[0]};Journal Mode=WAL");
        db.Open();
        Say("ready", typeof(SqliteConnection).Assembly.GetName().Version, db.ServerVersion);
        for (string line; (line = Console.ReadLine()) != null;)
        {
            try { Answer(db, line.Split('\t')); }
            catch (Exception error) { Say("error", error.Message); }
        }
    }
}

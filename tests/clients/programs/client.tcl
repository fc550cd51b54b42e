# Tcl's sqlite3, and its tdbc: `tclsh client.tcl FILE`.
package require sqlite3

fconfigure stdout -buffering line
sqlite3 db [lindex $argv 0]
proc say {args} {puts [join [lmap part $args {regsub -all {\s+} $part { }}] \t]}

say ready [package require sqlite3] [db version]
while {[gets stdin line] >= 0} {
    set values [lassign [split $line \t] verb sql]
    # Values are bound by the name of a variable: ? becomes $v0, $v1, ...
    set number 0
    foreach value $values {
        set text [string range $value 1 end]
        switch [string index $value 0] {
            i - r {set v$number [expr {$text}]}
            b {set v$number [expr {$text ? true : false}]}
            d {set v$number [clock format [expr {$text / 1000}]]}
            n {unset -nocomplain v$number}
            default {set v$number $text}
        }
        regsub {\?} $sql "\$v$number" sql
        incr number
    }
    if {[catch {
        db eval $sql row {
            say row {*}[lmap name $row(*) {set row($name)}]
            if {$verb eq "first"} break
        }
        say done [db changes] [db last_insert_rowid]
    } message]} {say error $message}
}

"""Shell completion: the script for a shell; `offers` has what Tab then offers."""

from __future__ import annotations

import click

PROGRAM = "litejobs"
VARIABLE = "_LITEJOBS_COMPLETE"

# Bash cuts words at `:` and `=`, and puts what is offered after the last cut. So pieces
# with no blank between them are joined for the question, and what stands before the
# piece that is being typed is cut off the answers.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line=$COMP_LINE piece gap place kind offer cut=''
    local -a words=()
    for ((place = 0; place <= COMP_CWORD; place++)); do
        piece=${COMP_WORDS[place]}
        gap=$COMP_LINE
        while [[ $line == [[:blank:]]* ]]; do
            line=${line:1}
            gap=''
        done
        cut=''
        if [[ $place -gt 0 && -n $gap && $line == "$piece"* ]]; then
            cut=${words[-1]}
            words[-1]+=$piece
        else
            words+=("$piece")
        fi
        line=${line#"$piece"}
    done
    # A piece that is a cut itself is not typed again.
    [[ -n $piece && $piece != *[^=:]* && $COMP_WORDBREAKS == *"${piece: -1}"* ]] &&
        cut=${words[-1]}
    # Of an option, only its value is offered.
    [[ $cut == --*=* ]] && cut=${cut#*=}
    COMPREPLY=()
    while IFS=, read -r kind offer; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${offer#"$cut"}") ;;
        esac
    done < <(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \\
        %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@click.command(
    epilog="""\b
Examples:
  litejobs completion bash > ~/.local/share/bash-completion/completions/litejobs
  litejobs completion zsh > "${fpath[1]}/_litejobs"
  litejobs completion fish > ~/.config/fish/completions/litejobs.fish

\b
Or for this shell alone:
  eval "$(litejobs completion bash)"
  eval "$(litejobs completion zsh)"
  litejobs completion fish | source""",
    help="""Print the script that lets a shell complete what is typed.

    Install it as in the examples, and open a new shell. Tab then knows the commands and
    options, and once the file is named (with --db before it, or LITEJOBS_DB) the jobs,
    queues, tasks and the like that are in it.
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    from click.shell_completion import (
        BashComplete,
        get_completion_class,
    )

    class Bash(BashComplete):
        source_template = _BASH

    made = Bash if shell == "bash" else get_completion_class(shell)
    assert made is not None  # click has had all three since 8.0
    group = context.find_root().command
    click.echo(made(group, {}, PROGRAM, VARIABLE).source(), nl=False)

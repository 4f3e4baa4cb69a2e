# Completion of rlcb for fish, printed by: rlcb completion fish

# The verb and the first algorithm behind it.
function __rlcb_command
    set -l words (commandline -opc)
    set -l command
    set -l previous
    for word in $words[2..-1]
        if not string match -q -- '-*' $word
            if test -z "$command"
                set command $word
            else if contains -- "$command" train limits; and contains -- $word ALGORITHM_NAMES
                string match -q -- '-*' $previous; or set command "$command $word"
            end
        end
        set previous $word
    end
    echo $command
end

function __rlcb_is
    test (__rlcb_command) = "$argv"
end

# Whether the last flag of a command is this one.
function __rlcb_within -a flag
    set -l given (string match -- '-*' (commandline -opc))
    test "$given[-1]" = "$flag"; and __rlcb_is $argv[2..-1]
end

complete -c rlcb -f
# (table)

#compdef rlcb
# Completion of rlcb for zsh, printed by: rlcb completion zsh

_rlcb() {
    local command='' flag='' after=0 previous='' word
    local -a flags
    local arguments='' argument_files='' takes='' choices='' files='' index
    # The verb, the first algorithm behind it, the last flag and the number of words after that.
    for ((index = 2; index < CURRENT; index++)); do
        word="${words[index]}"
        if [[ $word == -*=* ]]; then
            flag='' after=0
        elif [[ $word == -* ]]; then
            flag=$word after=0
        else
            after=$((after + 1))
            if [[ -z $command ]]; then
                command=$word
            elif [[ ' train limits ' == *" $command "* && ' ALGORITHM_NAMES ' == *" $word "* && $previous != -* ]]; then
                command="$command $word"
            fi
        fi
        previous=$word
    done
    if [[ $PREFIX == --*=* ]]; then
        flag="${PREFIX%%=*}" after=0
        compset -P '*='
    fi
    case "$command" in
# (table)
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o 'flag' flags
        return
    elif [[ ! ($takes == one && $after == 0 || $takes == several) ]]; then
        choices=$arguments files=$argument_files
    fi
    compadd -- ${=choices}
    case "$files" in
    file) _files ;;
    directory) _files -/ ;;
    esac
}

if [[ $funcstack[1] == _rlcb ]]; then
    _rlcb "$@"
else
    compdef _rlcb rlcb
fi

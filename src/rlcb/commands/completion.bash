# Completion of rlcb for bash, printed by: rlcb completion bash

_rlcb() {
    local current="${COMP_WORDS[COMP_CWORD]}" command='' flag='' after=0 previous='' word line
    local flags=() arguments='' argument_files='' takes='' choices='' files='' index
    # The verb, the first algorithm behind it, the last flag and the number of words after that; bash makes a word of =.
    for ((index = 1; index < COMP_CWORD; index++)); do
        word="${COMP_WORDS[index]}"
        [[ $word == '=' ]] && continue
        if [[ $word == -* ]]; then
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
    [[ $current == '=' ]] && current=''
    case "$command" in
# (table)
    esac
    COMPREPLY=()
    if [[ $current == -* ]]; then
        choices="${flags[*]}" files=''
    elif [[ ! ($takes == one && $after == 0 || $takes == several) ]]; then
        choices=$arguments files=$argument_files
    fi
    [[ -n $files ]] && compopt -o filenames 2>/dev/null
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(
        compgen -W "$choices" -- "$current"
        case "$files" in
        file) compgen -f -- "$current" ;;
        directory) compgen -d -- "$current" ;;
        esac
    )
}

complete -F _rlcb rlcb

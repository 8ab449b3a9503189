// completion: prints a script by which a shell completes whence's commands, options and names. The script calls whence
// itself, so that it knows what this build knows.
#include <iostream>

#include "examples/whence/cli/command.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr const char* bash_script = R"sh(# bash completion of whence; in ~/.bashrc: eval "$(whence completion bash)"
_whence() {
  local IFS=$'\n' program=${COMP_WORDS[0]/#\~/$HOME} word=${COMP_WORDS[COMP_CWORD]} words
  words=$("$program" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  [[ $word == = ]] && word=
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _whence whence
)sh";

constexpr const char* zsh_script =
    R"sh(#compdef whence
# zsh completion of whence, found in fpath as _whence; or in ~/.zshrc, after compinit: eval "$(command whence completion zsh)"
disable whence 2>/dev/null  # zsh's own command of this name, which `type -a` and `which` can replace
_whence() {
  local program=${words[1]/#\~/$HOME}
  local -a candidates
  candidates=(${(f)"$("$program" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#candidates )); then compadd -a candidates; else _files; fi
}
if [[ ${funcstack[1]} == _whence ]]; then _whence "$@"; else compdef _whence whence; fi
)sh";

int run(CommandLine& line) {
  std::vector<std::string> shell;
  line.names("SHELL", &shell, "bash or zsh", {"bash", "zsh"})
      .example("eval \"$(whence completion bash)\"", "for this shell; a line for ~/.bashrc");
  if (line.shows_page()) return 0;
  const std::string name = shell.size() == 1 ? shell[0] : "";
  if (name != "bash" && name != "zsh")
    throw InputError("SHELL: one name required, bash or zsh; see whence completion --help");
  std::cout << (name == "bash" ? bash_script : zsh_script);
  return 0;
}

const RegisterCommand registered{
    {"completion", Purpose::machine, "a script by which bash or zsh completes the words of whence", run}};

}  // namespace
}  // namespace whence

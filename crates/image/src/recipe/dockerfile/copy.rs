//! `COPY` and `ADD` (<https://docs.docker.com/reference/dockerfile/#copy>, `#add`).

use super::lines::heredoc;
use super::paths;
use super::resolve::Place;
use super::syntax::Args;
use crate::recipe::error::DockerfileErrorKind as Kind;
use crate::recipe::ignore::Ignore;
use crate::recipe::step::{CopyFiles, Origin, Source};

impl Place<'_> {
    pub(super) fn copy(&self) -> Result<CopyFiles, Kind> {
        let instruction = self.instruction;
        let is_add = instruction.keyword == "ADD";
        for flag in ["keep-git-dir", "checksum"] {
            if instruction.flag(flag).is_some() {
                return Err(no_download());
            }
        }
        let from = match instruction.flag_text("from")? {
            Some(text) => self.common.from(text, self.stage, "--from")?,
            None => Origin::Context,
        };
        let expanded = |flag| -> Result<Option<String>, Kind> {
            let text = instruction.flag_text(flag)?;
            text.map(|text| self.expand(text)).transpose()
        };
        let chmod = expanded("chmod")?
            .map(|text| paths::mode("chmod", &text))
            .transpose()?;
        let exclude = instruction.flag_texts("exclude")?;
        let exclude: Vec<String> = exclude
            .into_iter()
            .map(|text| self.expand(text))
            .collect::<Result<_, _>>()?;
        Ignore::new(&exclude)?;
        let parents = instruction.flag_switch("parents", false)?;
        let (sources, dest) = self.sources(is_add, parents)?;
        Ok(CopyFiles {
            sources,
            from,
            dest,
            chown: expanded("chown")?.filter(|owner| !owner.is_empty()),
            chmod,
            link: instruction.flag_switch("link", false)?,
            exclude,
            parents,
            unpack: is_add && instruction.flag_switch("unpack", true)?,
        })
    }

    fn sources(&self, is_add: bool, parents: bool) -> Result<(Vec<Source>, String), Kind> {
        let needs = || {
            self.instruction
                .needs("one or more sources and a destination")
        };
        let is_words = matches!(self.instruction.args, Args::Words(_));
        let (dest, words) = self.words().split_last().ok_or_else(needs)?;
        if words.is_empty() || (is_words && heredoc(dest).is_some()) {
            return Err(needs());
        }
        let mut heredocs = self.instruction.heredocs.iter();
        let mut sources = Vec::new();
        for word in words {
            let inline = if is_words && heredoc(word).is_some() {
                heredocs.next()
            } else {
                None
            };
            if let Some(heredoc) = inline {
                let content = heredoc.content();
                sources.push(Source::Heredoc {
                    name: heredoc.name.clone(),
                    content: if heredoc.expand {
                        self.expand_content(&content)?
                    } else {
                        content
                    },
                });
                continue;
            }
            let path = self.expand(word)?;
            if is_add && is_remote(&path) {
                return Err(no_download());
            }
            if path.is_empty() {
                // Docker takes the whole folder, which nobody means who misspelt a variable.
                return Err(self
                    .instruction
                    .needs("sources that are not empty: . is the whole folder"));
            }
            sources.push(Source::Path(paths::source(&path, parents)?));
        }
        let dest = self.expand(dest)?;
        // A heredoc's word with spaces in it is several words here, as it is to Docker.
        if dest.is_empty() || heredocs.next().is_some() {
            return Err(needs());
        }
        Ok((sources, dest))
    }
}

fn is_remote(path: &str) -> bool {
    ["http://", "https://", "ftp://", "git://", "ssh://", "git@"]
        .iter()
        .any(|start| path.starts_with(start))
}

fn no_download() -> Kind {
    Kind::Unsupported {
        what: "ADD from somewhere else",
        instead: "download it in a RUN, where its checksum can be looked at, or put it into the folder that is built",
    }
}

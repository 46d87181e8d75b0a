/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs. A verb that is added here is parsed, documented and completed. */
#include "cli/table.h"

#define RUN_HELP        "Name of the run."
#define DRY_RUN_HELP    "Only list what would be done. That is so without this option, too: --yes does it."
#define YES_HELP        "Do it. Without this only what would be done is listed."
#define CHECKPOINT_HELP "A checkpoint by its id, or a live one by its step."

static const struct cli_operand run_operand[] = {{"RUN", RUN_HELP, false, false, false}, {0}};
static const struct cli_operand run_and_newest[] = {
    {"RUN", RUN_HELP, false, false, false},
    {"ID|STEP", CHECKPOINT_HELP " Default: the newest live one.", true, false, false},
    {0},
};

static const struct cli_operand ls_operands[] = {
    {"RUN", "Name of the run whose checkpoints are listed. Default: list the runs.", true, false, false},
    {0},
};
static const struct cli_example ls_examples[] = {
    {"breakwater ls --remote file:///lustre/bw", "All runs of a tier."},
    {"breakwater ls gpt --json", "The checkpoints of one run, for a script."},
    {0},
};

static const struct cli_verb_option show_options[] = {
    {OPT_TENSORS, "Show only tensors whose name matches the pattern. May be given several times."},
    {OPT_BOXES, "Show the boxes in which each tensor was saved, and the group that wrote each."},
    {OPT_METADATA, "Show the metadata of every rank that gave some."},
    {0, NULL},
};
static const struct cli_example show_examples[] = {
    {"breakwater show gpt", "The newest live checkpoint."},
    {"breakwater show gpt 1200 --tensors 'layers.0.*' --boxes", "Where the pieces of one layer lie."},
    {0},
};

static const struct cli_operand verify_operands[] = {
    {"RUN", RUN_HELP, false, false, false},
    {"ID|STEP", CHECKPOINT_HELP " Default: all live and shelved ones, and the history.", true, false, false},
    {0},
};
static const struct cli_verb_option verify_options[] = {
    {OPT_FAST, "Look at sizes and metadata only; do not read the tensors."},
    {0, NULL},
};
static const struct cli_example verify_examples[] = {
    {"breakwater verify gpt", "Read and hash everything."},
    {"breakwater verify gpt 1200 --fast", "Is everything there? Takes seconds."},
    {0},
};

static const struct cli_operand diff_operands[] = {
    {"RUN", RUN_HELP, false, false, false},
    {"A", CHECKPOINT_HELP, false, false, false},
    {"B", CHECKPOINT_HELP, false, false, false},
    {0},
};
static const struct cli_verb_option diff_options[] = {
    {OPT_TENSORS, "Compare only tensors whose name matches the pattern, and no blobs. May be given several times."},
    {0, NULL},
};
static const struct cli_example diff_examples[] = {
    {"breakwater diff gpt 1000 1200", "What 200 steps changed."},
    {0},
};

static const struct cli_verb_option export_options[] = {
    {OPT_TO, "Required. Folder to write to; it is made if it does not exist."},
    {OPT_SHARD_BYTES, "Begin a new file before one would hold more bytes of tensors than this. Default: 5GB."},
    {OPT_TENSORS, "Export only tensors whose name matches the pattern. May be given several times."},
    {OPT_STRIP_PREFIX, "Leave PREFIX out of the names that begin with it: a model that was saved as \"model\" gets the "
                       "names that its own loader looks for."},
    {OPT_WITH_BLOBS, "Write blobs to DIR/blobs/RANK/NAME and metadata to DIR/metadata/RANK.json too."},
    {OPT_NEW_DTYPES, "Write also C64 and F8_E8M0, which only recent safetensors readers know."},
    {OPT_SKIP_UNSUPPORTED, "Leave out tensors that a safetensors file cannot hold, and name them, instead of failing."},
    {OPT_FORCE, "Replace an earlier export in the folder."},
    {0, NULL},
};
static const struct cli_example export_examples[] = {
    {"breakwater export gpt --to /data/gpt", "The newest live checkpoint as safetensors files."},
    {"breakwater export gpt 1200 --to /data/gpt --shard-bytes 2GB --tensors 'model.*'",
     "Only the weights, in small files."},
    {"breakwater export gpt --to /data/gpt --tensors 'model.*' --strip-prefix model.",
     "The part \"model\" of a PyTorch state, as transformers loads it."},
    {0},
};

static const struct cli_operand import_operands[] = {
    {"FILE", "A safetensors file, or a folder that holds model.safetensors or model.safetensors.index.json.", false,
     true, true},
    {0},
};
static const struct cli_verb_option import_options[] = {
    {OPT_RUN, "Required. Run to import into; it is begun if it does not exist."},
    {OPT_STEP, "Required. Training step that the checkpoint gets; above the newest live one of the run."},
    {OPT_JOB, "Job that registers the attempt. Required for a run that has a history: another job that uses the run "
              "is superseded."},
    {OPT_WITH_BLOBS, "Import also the blobs and the metadata of rank 0 that an export left in the folder."},
    {OPT_ALLOW_NODE_LOCAL, "Accept a remote tier on a file system of this node."},
    {OPT_ALLOW_SAME_DEVICE, "Accept a local and a remote tier on one device."},
    {0, NULL},
};
static const struct cli_example import_examples[] = {
    {"breakwater import --run gpt --step 0 /data/gpt", "Begin a run from files that somebody published."},
    {0},
};

static const struct cli_example drain_examples[] = {
    {"breakwater drain gpt --local file:///nvme/bw", "After a trainer died on this node."},
    {0},
};

static const struct cli_verb_option prune_options[] = {
    {OPT_KEEP_LAST, "Keep the newest N live checkpoints, and retire those that no rule keeps."},
    {OPT_KEEP_EVERY, "Besides, keep every checkpoint whose step is a multiple of STEPS."},
    {OPT_KEEP_YOUNGER, "Besides, keep everything committed less than DURATION ago."},
    {OPT_RETIRE, "Retire this checkpoint, live or shelved. May be given several times."},
    {OPT_SHELVED, "Retire all that a rollback or a fresh start has set aside, but for pinned ones."},
    {OPT_PIN, "Pin this checkpoint: no rule retires it. May be given several times."},
    {OPT_UNPIN, "Unpin this checkpoint. May be given several times."},
    {OPT_GRACE, "Leave data that died less than DURATION ago. Default: 1h."},
    {OPT_DROP_FOREIGN, "Delete also data of another life of the run."},
    {OPT_YES, YES_HELP},
    {OPT_DRY_RUN, DRY_RUN_HELP},
    {0, NULL},
};
static const struct cli_example prune_examples[] = {
    {"breakwater prune gpt --keep-last 3 --keep-every 10000", "What would go?"},
    {"breakwater prune gpt --keep-last 3 --keep-every 10000 --yes", "Let it go."},
    {"breakwater prune gpt --shelved --yes", "Drop what a rollback has set aside."},
    {"breakwater prune gpt --pin 120000 --yes", "Keep one for ever."},
    {0},
};

static const struct cli_operand rollback_operands[] = {
    {"RUN", RUN_HELP, false, false, false},
    {"STEP|ID", CHECKPOINT_HELP " It becomes the newest one.", false, false, false},
    {0},
};
static const struct cli_verb_option rollback_options[] = {
    {OPT_LABEL, "Name of this wish; a label works once in a run. Default: made from the step and the time."},
    {OPT_YES, YES_HELP},
    {OPT_DRY_RUN, DRY_RUN_HELP},
    {0, NULL},
};
static const struct cli_example rollback_examples[] = {
    {"breakwater rollback gpt 1000 --label loss-spike --yes", "Go back to step 1000."},
    {0},
};

static const struct cli_example history_examples[] = {
    {"breakwater history gpt", "Who decided what, and when."},
    {0},
};

static const struct cli_verb_option repair_options[] = {
    {OPT_COPIES, "Put right damaged copies from a sound one on the other tier."},
    {OPT_HISTORY, "If the newest entry of the history is damaged: begin a new era from the newest sound one."},
    {OPT_PROMOTE, "If the remote tier is an archive: let it decide from now on."},
    {OPT_YES, "Do it. Without this only what is damaged is listed."},
    {OPT_DRY_RUN, DRY_RUN_HELP},
    {0, NULL},
};
static const struct cli_example repair_examples[] = {
    {"breakwater repair gpt", "What is damaged?"},
    {"breakwater repair gpt --copies --yes", "Put right what has a sound copy."},
    {0},
};

static const struct cli_example doctor_examples[] = {
    {"breakwater doctor --remote file:///lustre/bw --local file:///nvme/bw", "Before the first job."},
    {0},
};

static const struct cli_operand completion_operands[] = {
    {"SHELL", "bash, zsh or fish.", false, false, false},
    {0},
};
static const struct cli_example completion_examples[] = {
    {"source <(breakwater completion bash)", "Complete in this shell."},
    {0},
};

static const struct cli_operand help_operands[] = {
    {"VERB", "The verb to explain. Default: list them.", true, false, false},
    {0},
};

const struct cli_verb cli_verbs[] = {
    {
        .name = "ls",
        .run = cmd_ls,
        .brief = "list runs, or the checkpoints of a run",
        .text =
            "Without an operand the runs of the remote tier are listed: their current attempt, how many checkpoints "
            "are live and shelved, the newest live step, sizes and ages.\n\n"
            "With RUN all checkpoints of that run are listed, whatever their state: live (a launch may resume from "
            "it), shelved (set aside by a rollback or a fresh start), pending (not committed yet), dead (a sweep will "
            "take it), foreign (of another life of the run), ahead (of an attempt that is newer than the history "
            "that was read). GROUPS counts the groups that are complete in the remote tier.",
        .operands = ls_operands,
        .examples = ls_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "show",
        .run = cmd_show,
        .brief = "show what a checkpoint holds and where its bytes lie",
        .text = "Shows the checkpoint itself, its tensors and blobs, every object that it consists of on each tier, "
                "and which checkpoints refer to which. The tensors of a checkpoint that is not committed cannot be "
                "read; its objects are shown.",
        .operands = run_and_newest,
        .options = show_options,
        .examples = show_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "verify",
        .run = cmd_verify,
        .brief = "check every hash of a checkpoint or of a whole run",
        .text =
            "Reads every object of the checkpoints on each tier that is given, compares all hashes with the chain "
            "that begins in the history, and checks that every tensor is covered exactly once. Every damaged object "
            "is named.\n\n"
            "The exit code is 3 when damage was found.",
        .operands = verify_operands,
        .options = verify_options,
        .examples = verify_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "diff",
        .run = cmd_diff,
        .brief = "compare two checkpoints of a run",
        .text =
            "Lists tensors and blobs that were added, removed or changed between A and B. For tensors of the same "
            "dtype and shape it counts the elements whose bits differ; for blobs, the bytes. Says when the two "
            "are identical.\n\n"
            "The tensors stream through bounded memory (--memory of at least 144MiB); a blob is read whole. The exit "
            "code is 0 whether or not there are differences.",
        .operands = diff_operands,
        .options = diff_options,
        .examples = diff_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "export",
        .run = cmd_export,
        .brief = "write a checkpoint as plain safetensors files",
        .text =
            "Writes whole tensors, whatever boxes they were saved in: model.safetensors, or "
            "model-00001-of-0000N.safetensors with model.safetensors.index.json beside them when there is more than "
            "one file. Tools of the Hugging Face ecosystem read these names.\n\n"
            "Files get their final names only when all of them are complete and synced. An earlier export in the "
            "folder is left alone unless --force is given. A tensor whose dtype a safetensors file cannot hold is "
            "an error that names it.",
        .operands = run_and_newest,
        .options = export_options,
        .examples = export_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "import",
        .run = cmd_import,
        .brief = "make a checkpoint from safetensors files",
        .text =
            "Opens the run as a job of one rank, saves the tensors of all files as one checkpoint, waits until it is "
            "committed and closes. That registers a new attempt: a training job that uses the run loses its own.\n\n"
            "The files are mapped into memory and must not change meanwhile.",
        .operands = import_operands,
        .options = import_options,
        .examples = import_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "drain",
        .run = cmd_drain,
        .brief = "finish what a dead process left on the local tier",
        .text =
            "Copies groups that are complete on the local tier, and may still count, to the remote tier, and commits "
            "what is complete there. Says what was done, and which checkpoints still lack which groups. Without "
            "--local only the remote tier is looked at.",
        .operands = run_operand,
        .examples = drain_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "prune",
        .run = cmd_prune,
        .brief = "retire old checkpoints and delete what is dead",
        .text = "Retires live checkpoints that no rule keeps, and those that are named, then deletes dead data on each "
                "tier that is given. Never touched are the newest checkpoint, pinned ones, what others refer to, and "
                "what is still being written. Without rules nothing is retired, and only dead data is deleted; "
                "shelved checkpoints stay until --shelved or --retire lets them go. With nothing but --pin and --unpin "
                "nothing is deleted.\n\n"
                "Without --yes this is a dry run. Pins are set before the rules are applied; a dry run leaves out what "
                "--pin would protect, but cannot foresee what --unpin would let go.",
        .operands = run_operand,
        .options = prune_options,
        .examples = prune_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "rollback",
        .run = cmd_rollback,
        .brief = "go back to an older checkpoint and set aside the newer ones",
        .text =
            "Makes an older checkpoint the newest one. Those above it are shelved: kept, but no launch resumes from "
            "them. A launch that is running loses its attempt, and its restart resumes from the older "
            "checkpoint.\n\n"
            "Without --yes this is a dry run.",
        .operands = rollback_operands,
        .options = rollback_options,
        .examples = rollback_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "history",
        .run = cmd_history,
        .brief = "show the log of a run's decisions",
        .text = "Lists the entries of the history, oldest first: launches that registered, checkpoints that were "
                "committed, aborted, retired, pinned, and repairs. Times are in UTC, by the clock of whoever wrote the "
                "entry. At most the last 900 entries exist. The exit code is 3 when an entry is damaged.",
        .operands = run_operand,
        .examples = history_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "repair",
        .run = cmd_repair,
        .brief = "put right damaged copies or a damaged history",
        .text =
            "Says what is damaged and what of it can be put right. With --yes it does what the other options "
            "allow; without it this is a dry run. The exit code is 3 when damage remains, so a dry run that finds any "
            "gives 3.",
        .operands = run_operand,
        .options = repair_options,
        .examples = repair_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "doctor",
        .run = cmd_doctor,
        .brief = "check what this machine and these tiers can do",
        .text = "Checks direct I/O, io_uring, huge pages, userfaultfd, locked memory and free space, and races the "
                "creation of objects to see whether an object is really created once. Works on folders that "
                "are no stores yet, and leaves nothing behind. A tier that does not answer within --timeout is a "
                "finding, and the other one is examined all the same. At least one tier must be given.",
        .examples = doctor_examples,
        .tiers = true,
        .json = true,
    },
    {
        .name = "version",
        .run = cmd_version,
        .brief = "print the versions of the command and the library",
        .text = "Prints the version that the command was built for, and that of the library that is loaded.",
        .json = true,
    },
    {
        .name = "completion",
        .run = cmd_completion,
        .brief = "print a completion script for a shell",
        .text = "Prints a script that teaches bash, zsh or fish to complete the verbs and options of this command.",
        .operands = completion_operands,
        .examples = completion_examples,
    },
    {
        .name = "help",
        .run = cmd_help,
        .brief = "explain the command or a verb",
        .text = "Prints the list of verbs, or the help of one: the same as VERB --help.",
        .operands = help_operands,
    },
    {0},
};

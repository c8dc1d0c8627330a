/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_BUGS_H
#define SIM_BUGS_H

/**
 * @file
 * Counters of the faults of engines and disks, over all runs of the process: --seen, --nightly.
 * Writer: the thread that runs the world.
 */

#include <stdint.h>

/* Faults of engines and disks. */
#define SIM_BUGS(X)                                                                                \
	X(LOST, "KV events lost")                                                                  \
	X(TWICE, "blocks announced twice")                                                         \
	X(PARENT, "KV events with a wrong parent")                                                 \
	X(NEVER, "KV events for blocks never stored")                                              \
	X(EPOCH, "a restarted process with its old epoch")                                         \
	X(FORGOT, "a restart without AllBlocksCleared")                                            \
	X(MOVED, "a rank moved to another worker")                                                 \
	X(MUTE, "a request answered after 40 s, by an error")                                      \
	X(AFTER, "an answer after the abort")                                                      \
	X(ERROR, "an answer that ended with an error")                                             \
	X(REFUSED, "a request rejected by the engine")                                             \
	X(CLOCK, "a restarted process with a lower epoch")                                         \
	X(WARM, "a worker restored from a snapshot")                                               \
	X(FULL, "a failed file operation")                                                         \
	X(FLIPPED, "a file with a flipped bit")                                                    \
	X(TORN, "a truncated file")                                                                \
	X(OLDER, "a snapshot older than the last one")
#define SIM_BUG_ENUM(name, text) SIM_BUG_##name,
enum sim_bug { SIM_BUGS(SIM_BUG_ENUM) SIM_N_BUGS };
void sim_bug(enum sim_bug bug);
/** Print the counters. @return number of faults that never occurred. */
uint32_t sim_print_bugs(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_BUGS_H
#define SIM_BUGS_H

/**
 * @file
 * What engines and disks do wrong, counted over all runs of the process: --seen, --nightly. The
 * thread that runs the world writes.
 */

#include <stdint.h>

/* What engines and disks have done wrong, in all runs. */
#define SIM_BUGS(X)                                                                                \
	X(LOST, "KV events lost")                                                                  \
	X(TWICE, "blocks announced twice")                                                         \
	X(PARENT, "a lie about the parent")                                                        \
	X(NEVER, "an event for blocks never stored")                                               \
	X(EPOCH, "a process with the epoch of the one before it")                                  \
	X(FORGOT, "a restart without AllBlocksCleared")                                            \
	X(MOVED, "a rank at another worker")                                                       \
	X(MUTE, "no answer, ever")                                                                 \
	X(AFTER, "an answer after the abort")                                                      \
	X(ERROR, "an error in the middle of an answer")                                            \
	X(REFUSED, "a request refused")                                                            \
	X(CLOCK, "a process with an epoch below the one before it")                                \
	X(WARM, "a worker that found its blocks in a snapshot")                                    \
	X(FULL, "a file that takes no more")                                                       \
	X(FLIPPED, "a file with a wrong bit")                                                      \
	X(TORN, "a file that ends early")                                                          \
	X(OLDER, "a snapshot older than the last")
#define SIM_BUG_ENUM(name, text) SIM_BUG_##name,
enum sim_bug { SIM_BUGS(SIM_BUG_ENUM) SIM_N_BUGS };
void sim_bug(enum sim_bug bug);
/** Print how often. @return how many of them never. */
uint32_t sim_bugs_say(void);

#endif

"""Names of what travels in a transition, a batch and an info dict (one flat vocabulary)."""

# A transition: one step of N environments.
OBS = "Observation"
RHS = "RecurrentHiddenStates"
DONE = "Done"
ACT = "Action"
REW = "Reward"
OBS2 = "NextObservation"
RHS2 = "NextRecurrentHiddenStates"
DONE2 = "NextDone"

# What on-policy algorithms predict while they act, and what their storages derive from it.
VAL = "Value"
IVAL = "IntrinsicValue"
LOGP = "LogProbability"
IREW = "IntrinsicReward"
RET = "ExternalReturn"
IRET = "IntrinsicReturn"
ADV = "Advantage"
IADV = "IntrinsicAdvantage"
ACTPROBS = "ActionProbs"

# Working keys: carried beside the documented tensors, never listed in `storage_tensors`.
TERMINAL = "NextTerminal"
MASK = "MaskedSamples"
N_STEP = "n_step"
PER_WEIGHTS = "per_weights"
INDICES = "idxs"
PREDICTED = "PredictedReturn"

# A batch of a world model: standardized inputs, what they lead to, and how often each member of an ensemble sees them.
INPUT = "train_input"
LABEL = "train_label"
ENDS = "train_terminal"
WEIGHTS = "train_weights"

# An environment's own: the entry of its info, or of its Dict observation, that says which actions are allowed now.
ACTION_MASK = "action_mask"

# Info sections.
ALGORITHM = "Algorithm"
EPISODES = "Episodes"
SCHEME = "Scheme"
TIME = "Time"

# How workers of a scheme communicate.
SYNC = "synchronous"
ASYNC = "asynchronous"

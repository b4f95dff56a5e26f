package cli

// MaxHeld is how many events wait behind a question.
const MaxHeld = maxHeld

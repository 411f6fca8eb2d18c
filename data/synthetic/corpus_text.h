#pragma once

#include <array>
#include <string_view>

/// The words and sentences of the built-in corpus. {slots} are filled by corpus.cpp: those that end
/// in 2 belong to the second person of a paragraph, small word lists are at the end.
namespace focus::corpus {

using Text = std::string_view;

// Names, put together from parts.

inline constexpr auto kFirstStarts = std::to_array<Text>(
    {"Ma",  "El", "Bri", "Ro", "Ta", "Li", "He", "Co", "Ja", "Wi", "Ne", "Sa", "A",  "Fe",
     "Gre", "O",  "I",   "Me", "Do", "Ti", "Ka", "Lu", "Pa", "Ve", "Ha", "Be", "Ru", "Si"});
inline constexpr auto kFirstMiddles = std::to_array<Text>(
    {"r", "l", "n", "ss", "v", "d", "th", "b", "nn", "ll", "m", "st", "rr", "nd", "lv", "rm"});
inline constexpr auto kFemaleEnds =
    std::to_array<Text>({"a", "en", "ie", "ine", "ith", "ora", "essa", "wen", "ette", "ise"});
inline constexpr auto kMaleEnds =
    std::to_array<Text>({"o", "in", "ard", "us", "ick", "an", "old", "or", "ek", "am"});
inline constexpr auto kSurnameStarts = std::to_array<Text>(
    {"Hol", "Ash", "Bram", "Cor",  "Dun",  "Fair", "Gar",  "Hart",  "Kel",  "Lang",
     "Mar", "Nor", "Oak",  "Pen",  "Quil", "Rad",  "Stan", "Thorn", "Wal",  "Whit",
     "Yar", "Bel", "Crow", "Dray", "Elm",  "Fen",  "Gold", "Heath", "Ives", "Lock"});
inline constexpr auto kSurnameMiddles = std::to_array<Text>({"", "", "er", "ing", "en"});
inline constexpr auto kSurnameEnds =
    std::to_array<Text>({"ton", "ley", "field", "worth", "by", "wick", "man", "ford", "wood",
                         "gate", "den", "more", "stone", "bridge", "sby", "ham", "well", "cott"});
inline constexpr auto kTownStarts = std::to_array<Text>(
    {"Dun",    "Brack", "Sel",    "Harrow", "Mill",  "Stone", "Wether", "Cold",  "Raven",  "Pel",
     "Sutter", "Alder", "Birk",   "Carn",   "Drift", "Ember", "Fal",    "Gorse", "Hollin", "Kings",
     "Lark",   "Marl",  "Nether", "Otter",  "Pike",  "Rush",  "Swan",   "Tarn",  "Wend",   "Yew"});
inline constexpr auto kTownEnds =
    std::to_array<Text>({"moor", "haven", "mere", "stead", "combe", "bury", "minster", "cliff",
                         "holm", "wick", "beck", "dale", "hurst", "thorpe", "ness", "port"});

// Belongings and places.

inline constexpr auto kJobs = std::to_array<Text>(
    {"miller",      "baker",     "carpenter",  "weaver",    "clockmaker", "schoolteacher",
     "fisher",      "printer",   "mason",      "potter",    "beekeeper",  "ferry keeper",
     "saddler",     "gardener",  "doctor",     "glazier",   "bookbinder", "cooper",
     "lamplighter", "shepherd",  "tailor",     "smith",     "mapmaker",   "organist",
     "engraver",    "innkeeper", "apothecary", "oar maker", "thatcher",   "brewer"});
inline constexpr auto kMaterials = std::to_array<Text>(
    {"brass", "silver", "wooden", "painted", "rusty", "leather", "copper", "green", "broken",
     "heavy", "narrow", "velvet", "iron", "blue", "stolen", "folded", "carved", "yellow"});
inline constexpr auto kObjects = std::to_array<Text>(
    {"key",    "lantern",   "flute",   "map",   "box",         "ledger", "compass", "ring", "bell",
     "mirror", "knife",     "letter",  "medal", "pipe",        "cup",    "violin",  "comb", "chain",
     "book",   "telescope", "whistle", "purse", "candlestick", "button", "drum",    "seal"});
inline constexpr auto kHidingPlaces = std::to_array<Text>(
    {"behind the clock", "under the stairs", "inside the stove", "above the door",
     "beneath the bench", "behind the third shelf", "under a loose board", "inside the chimney",
     "below the window", "behind the mirror", "under the grain sacks", "inside an empty barrel",
     "on the highest beam", "beside the well", "under the doorstep", "in the bottom drawer"});
inline constexpr auto kBuildings =
    std::to_array<Text>({"mill", "chapel", "boathouse", "school", "stable", "bakery", "tower",
                         "inn", "workshop", "barn", "library", "cellar", "lighthouse", "granary",
                         "forge", "tollhouse", "smokehouse", "greenhouse"});
inline constexpr auto kCoats = std::to_array<Text>(
    {"grey", "old", "spotted", "lame", "black", "one-eyed", "stubborn", "red", "small", "proud"});
inline constexpr auto kAnimals =
    std::to_array<Text>({"mare", "goat", "dog", "cat", "goose", "donkey", "raven", "hound", "pony",
                         "hen", "owl", "mule"});

// The opening: one sentence per fact.

inline constexpr auto kTitles =
    std::to_array<Text>({"The Tale of {full} and {full2}", "What Happened in {town}",
                         "{full} of {town}", "From {town} to {town2}", "How {full} Met {full2}",
                         "A Winter in {town2}", "{first} and {first2}", "The {job} of {town}"});

inline constexpr auto kTellPerson = std::to_array<Text>(
    {"{full} was {a_job} in {town}.", "In the town of {town} lived {a_job} named {full}.",
     "{full} had come to {town} as {a_job} and had never left.",
     "Everyone in {town} knew {full}, the {job}.",
     "There was once {a_job} in {town} whose name was {full}.",
     "The {job} of {town} in those days was {full}."});
inline constexpr auto kTellThing = std::to_array<Text>(
    {"{full} kept the {thing} {spot}.", "The {thing} of {full} was hidden {spot}.",
     "{He} owned one thing of worth, the {thing}, and {he} kept it {spot}.",
     "Nobody but {first} knew that the {thing} lay {spot}.",
     "Long ago {first} had put the {thing} {spot}, and there it stayed."});
inline constexpr auto kTellHouse = std::to_array<Text>(
    {"{His} house was number {house} in {street}.", "{He} lived at number {house} in {street}.",
     "{first} rented two rooms at number {house} in {street}.",
     "The door of number {house} in {street} was {his} own."});
inline constexpr auto kTellYear = std::to_array<Text>(
    {"{He} was born in the year {year}.", "{first} had been born in {year}, in a hard winter.",
     "The church book says that {first} was born in {year}.",
     "Born in {year}, {he} still remembered the old king."});
inline constexpr auto kTellPet = std::to_array<Text>(
    {"{He} had {a_pet} called {pet}.", "With {him} went {a_pet} by the name of {pet}.",
     "{His} only company was {a_pet}, and its name was {pet}.",
     "{first} never went anywhere without {pet}, {a_pet}."});
inline constexpr auto kTellDebt = std::to_array<Text>(
    {"{He} owed {creditor} {coins} crowns.",
     "From {full_creditor} {he} had borrowed {coins} crowns, and {he} meant to pay them back.",
     "It was no secret that {first} still owed {coins} crowns to {full_creditor}."});

// The body.

/// First sentences of a paragraph: they name who it is about.
inline constexpr auto kEvents = std::to_array<Text>(
    {"{Time} {first} met {first2} on the road to {town}.",
     "{Time} {full} walked from {town} to {town2} to see {full2}.",
     "{first} had promised to help {full2} with the {crop}.",
     "{Time} somebody knocked at number {house}, and {first} went down to look.",
     "{Time} {first} looked for the {thing} {spot}, and it was still there.",
     "{full2} asked {first} to bring the {thing} to {town2}.",
     "When {first2} came to {street}, {full} was standing at the door of number {house}.",
     "{Time} {pet} ran away, and {first} searched all of {town} for it.",
     "{Time} {first} went to {creditor} and began to count the {coins} crowns.",
     "The people of {town} said that {full} had grown quiet since the autumn.",
     "{first} wrote to {full2} in {town2}, but no answer came.",
     "{Time} {first2} found {pet} asleep beside the {tree} trees.",
     "{full} and {full2} had not spoken for a month.",
     "Two strangers came to {town} and asked for {full}, the {job}.",
     "{Time} {first} carried the {thing} out of the house and then carried it back.",
     "No other {job} in {town} worked as late as {first}.",
     "{first2} told the story of {full} to everyone in {town2}.",
     "{Time} a fire broke out in {street}, close to number {house}.",
     "{full2} would not believe that {first} was born in {year}.",
     "At the market of {town2} {first} bought bread and sold three baskets of {crop}.",
     "{first} dreamed that the {thing} was no longer {spot}.",
     "{Time} {full} was called before the judge in {town2}."});

/// Further sentences of a paragraph, about the same person.
inline constexpr auto kContinuations =
    std::to_array<Text>({"{He} was tired, but {he} said nothing about it.",
                         "{He} thought of the {thing} and smiled.",
                         "As every {job} does, {he} looked at {his} hands first.",
                         "{pet} followed {him} as far as the bridge.",
                         "Then {he} went home to {street} and locked the door.",
                         "{He} gave {first2} a loaf of bread and asked for nothing.",
                         "In {his} pocket {he} carried a letter from {full2}.",
                         "For a long time {he} stood still and listened.",
                         "{He} had never liked {town2}, and {he} did not like it now.",
                         "After that {he} spoke of nothing but {town}.",
                         "{He} remembered that the {coins} crowns had not been paid.",
                         "So {he} turned around and walked back to number {house}.",
                         "{His} friends in {town} would have laughed at {him}.",
                         "Nobody else could have told the {thing} from a copy.",
                         "{He} asked {first2} for advice, as {he} often did.",
                         "Even {pet} seemed to know that something was wrong.",
                         "Because of this {he} came late to work, which was rare for {a_job}.",
                         "{He} shook {his} head, for that was not how {first2} had told it.",
                         "The others waited for {him} until the candles were low.",
                         "But {first} was no child, and {he} did not cry.",
                         "Once more {he} made sure that the {thing} was {spot}.",
                         "Perhaps {first2} had been right all along.",
                         "{He} had seen many years since {year}, and this was not the worst."});

inline constexpr auto kDialogues = std::to_array<Text>(
    {"\"Where is the {thing}?\" asked {first2}. \"It is {spot},\" said {first}, \"where it always "
     "was.\"",
     "\"Who are you?\" asked the guard. \"I am {full},\" {he} answered, \"{a_job} from {town}.\"",
     "\"How much do you owe?\" asked the judge. \"I owe {coins} crowns to {full_creditor},\" said "
     "{first}.",
     "\"Is that your {animal}?\" asked {first2}. \"Yes,\" said {first}, \"that is {pet}.\"",
     "\"Which door is yours?\" asked {first2}. \"Number {house} in {street},\" said {first}.",
     "\"You are not from {town},\" said {first}. \"No,\" said {first2}, \"I am from {town2}.\"",
     "\"When were you born, {first}?\" asked the clerk. \"In {year},\" {he} said.",
     "\"Do not tell {first2},\" said {first}, \"that the {thing} is {spot}.\"",
     "\"Good evening, {sir},\" said {first2}. \"Good evening, {sir2},\" said {first}.",
     "\"I will wait for you in {town2},\" said {full2}. \"Then wait,\" said {first}.",
     "\"Have you seen {pet}?\" asked {first}. {first2} had seen no {animal} all day.",
     "\"What do you do in {town2}, {first2}?\" asked {first}. \"I am {a_job2},\" said {first2}.",
     "\"Give me the {thing},\" said {first2}. \"Never,\" said {first}, and that was the end of it.",
     "\"They say that {sir2} is ill,\" said {first}. \"{first2} was always strong,\" said the "
     "neighbour."});

inline constexpr auto kRecalls = std::to_array<Text>(
    {"The {thing} was still {spot}, just as {full} had left it.",
     "{full} had not forgotten that {full2} lived in {town2}.",
     "{pet}, the {animal} of {first}, lay by the fire in {street}.",
     "There were {coins} crowns on the table, which was what {first} owed {creditor}.",
     "On the door of number {house} somebody had painted the name of {full}.",
     "Nobody had touched the {thing} of {first}, and nobody had touched the {thing2} of {first2}.",
     "It was far from {town} to {town2}, and the road was bad.",
     "{first} was the {job}, and {first2} was the {job2}; they had little else to talk about.",
     "Since {year} the house of {first} had seen much trouble.",
     "Whoever asked for {sir} in {town} was sent to number {house} in {street}.",
     "People came from {town2} only to see {pet}.",
     "And so the {thing} stayed {spot}, and {first2} never heard of it."});

/// Weather, seasons and the like: no facts in them, they put distance between those that have.
inline constexpr auto kFillers =
    std::to_array<Text>({"The wind came from the {direction} and smelled of rain.",
                         "{Time} snow fell on the roofs and on the {tree} trees.",
                         "A {bird} sang in the {tree} tree and then was silent.",
                         "The river was high, and the mud on its banks was deep.",
                         "It was the month of {month}, and the days were growing shorter.",
                         "Clouds passed over the hills, and behind them came the sun.",
                         "In the fields the {crop} stood ready to be cut.",
                         "The {bird}s flew low over the water, which means rain.",
                         "All night the dogs barked at something in the dark.",
                         "From the {direction} came the sound of bells.",
                         "Fog lay in the valley until noon.",
                         "The road was white with dust, and nothing moved on it.",
                         "In {month} the mornings are cold there, even in the sun.",
                         "The old {tree} by the gate had lost its leaves.",
                         "Somewhere a door closed, and then it was quiet again.",
                         "There was a smell of smoke and of wet wool.",
                         "That year the {crop} was poor, and bread was dear.",
                         "The moon rose late and lit up the walls.",
                         "Children played in the square until it was dark.",
                         "A cart full of {crop} went by, drawn by two oxen.",
                         "The ice on the pond was too thin to walk on.",
                         "Water dripped from the roof into a bucket, drop by drop.",
                         "{Time} the first {bird}s of the year were seen.",
                         "The {month} fair brought pedlars, singers and thieves.",
                         "One by one the lamps were lit, and one by one they went out."});

// The end: every fact once more.

struct Question {
  Text question;
  Text answer;
};
inline constexpr auto kAskPerson = std::to_array<Question>(
    {{"Where did {full} live?", "In {town}."},
     {"Who was the {job} of {town}?", "{full}."},
     {"What was the trade of {full} from {town}?", "{first} was {a_job}."}});
inline constexpr auto kAskThing =
    std::to_array<Question>({{"Where did {full} keep the {thing}?", "{first} kept it {spot}."},
                             {"What did {full} keep {spot}?", "The {thing}."},
                             {"Whose was the {thing} that lay {spot}?", "It belonged to {full}."}});
inline constexpr auto kAskHouse =
    std::to_array<Question>({{"Where was the door of {full}?", "At number {house} in {street}."},
                             {"Who lived at number {house} in {street}?", "{full} did."}});
inline constexpr auto kAskYear = std::to_array<Question>(
    {{"When was {full} born?", "In {year}."}, {"Who was born in {year}?", "{full} was."}});
inline constexpr auto kAskPet =
    std::to_array<Question>({{"What was the {animal} of {full} called?", "{pet}."},
                             {"Who was {pet}?", "The {animal} of {full}."}});
inline constexpr auto kAskDebt = std::to_array<Question>(
    {{"How many crowns did {full} owe?", "{first} owed {coins} crowns to {full_creditor}."},
     {"Who owed {full_creditor} {coins} crowns?", "{full} did."}});

// Small words.

struct WordList {
  Text slot;
  std::array<Text, 8> words;
};
inline constexpr auto kWordLists = std::to_array<WordList>(
    {{"Time",
      {"At dawn", "Before noon", "That night", "On Sunday", "After supper", "The next morning",
       "In the evening", "Toward midnight"}},
     {"month", {"January", "March", "April", "June", "August", "September", "October", "November"}},
     {"bird", {"lark", "crow", "robin", "gull", "heron", "sparrow", "swallow", "rook"}},
     {"tree", {"oak", "birch", "willow", "pear", "elm", "lime", "walnut", "cherry"}},
     {"crop", {"barley", "hay", "wheat", "flax", "rye", "oats", "cabbage", "turnips"}},
     {"direction", {"north", "south", "east", "west", "hills", "sea", "marshes", "harbour"}}});
inline constexpr auto kStreetStarts =
    std::to_array<Text>({"Well", "Bell", "Rope", "Fish", "Chapel", "Hay", "Candle", "Goose",
                         "Silver", "Wall", "Ferry", "Orchard"});
inline constexpr auto kStreetEnds = std::to_array<Text>({"Lane", "Street", "Row", "Hill", "Yard"});

}  // namespace focus::corpus

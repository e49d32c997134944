// Texts that tests and benchmarks make: prose that is like English in what its words cost.
#pragma once

#include <cctype>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace atom {

// A lexicon of English function words and of made-up longer words.
inline std::vector<std::string> make_lexicon(size_t size) {
  std::vector<std::string> words = {
      "the",   "of",      "and",   "to",    "a",    "in",    "that",  "is",    "was",   "he",
      "for",   "it",      "with",  "as",    "his",  "on",    "be",    "at",    "by",    "I",
      "this",  "had",     "not",   "are",   "but",  "from",  "or",    "have",  "an",    "they",
      "which", "one",     "you",   "were",  "her",  "all",   "she",   "there", "would", "their",
      "we",    "him",     "been",  "has",   "when", "who",   "will",  "more",  "no",    "if",
      "out",   "so",      "said",  "what",  "up",   "its",   "about", "into",  "than",  "them",
      "can",   "only",    "other", "new",   "some", "could", "time",  "these", "two",   "may",
      "then",  "do",      "first", "any",   "my",   "now",   "such",  "like",  "our",   "over",
      "man",   "me",      "even",  "most",  "made", "after", "also",  "did",   "many",  "before",
      "must",  "through", "years", "where", "much", "your",  "way",   "well",  "down",  "should"};
  const char* const syllables[] = {"con", "ver", "ta",  "tion", "ment", "pre", "sub", "lic",
                                   "en",  "ded", "ing", "er",   "ly",   "re",  "dis", "tri",
                                   "bu",  "ble", "gen", "al",   "per",  "mis", "so",  "work"};
  std::mt19937 random(11);
  while (words.size() < size) {
    std::string word;
    const size_t num_syllables = 2 + random() % 3;
    for (size_t i = 0; i < num_syllables; ++i) word += syllables[random() % 24];
    words.push_back(word);
  }
  return words;
}

// English-like prose: the frequency of a word falls with its place in the lexicon.
inline std::string make_prose(size_t num_bytes) {
  const std::vector<std::string> lexicon = make_lexicon(12000);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::string text;
  bool sentence_start = true;
  while (text.size() < num_bytes) {
    // Zipf's law by inversion: place k with probability about 1 / k.
    const double place = std::exp(uniform(random) * std::log(static_cast<double>(lexicon.size())));
    std::string word = lexicon[static_cast<size_t>(place) - 1];
    if (sentence_start) word[0] = static_cast<char>(std::toupper(word[0]));
    text += word;
    const uint32_t what = random() % 100;
    sentence_start = what < 6;
    if (what < 4) {
      text += ". ";
    } else if (what < 6) {
      text += ".\n\n";
    } else if (what < 13) {
      text += ", ";
    } else if (what < 14) {
      text += "'s ";
    } else if (what < 15) {
      text.append(" (").append(std::to_string(random() % 2000)).append(") ");
    } else if (what < 22) {
      text += "\n";
    } else {
      text += ' ';
    }
  }
  text.resize(num_bytes);
  return text;
}

}  // namespace atom
